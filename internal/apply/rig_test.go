package apply

import (
	"bytes"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// rig is a machine over fresh stores, fed with entries as the group loops would
// feed it, and watched by itself.
type rig struct {
	*Machine
	index  uint64
	seen   []string // what Sink and Observer were told
	quiet  bool
	events []event
	held   bool // keys move only when a story says so
	last   *command.Step
	slots  []placement.Assignment // where slots go with the next move
}

type event struct {
	partition int
	rev       int64
	change    store.Change
}

func newRig(partitions int) *rig {
	r := &rig{}
	stores := make([]*store.Store, partitions)
	for p := range stores {
		stores[p] = store.New(nil)
	}
	r.Machine = New(Config{Stores: stores, Leases: lease.NewTable(), Placement: placement.New(partitions), Sink: r, Observer: r})
	return r
}

func (r *rig) Changes(p int, rev int64, changes []store.Change) {
	for _, c := range changes {
		r.events = append(r.events, event{p, rev, c})
		if !r.quiet {
			r.see("watch p%d %d.%d %s", p, rev, c.Sub, formatChange(c))
		}
	}
}

func (r *rig) LeaseGranted(l lease.Lease) { r.see("granted %d for %d s", l.ID, l.TTL) }
func (r *rig) LeaseRevoked(id int64)      { r.see("revoked %d", id) }
func (r *rig) AuthChanged(now *auth.State) {
	r.see("auth at revision %d, enabled %v", now.Revision, now.Enabled)
}
func (r *rig) Authenticated(index, credential uint64, token string) {
	r.see("authenticated %d at %d: %s", credential, index, token)
}
func (r *rig) LeaseEnding(id int64) { r.see("ending %d", id) }
func (r *rig) Compacted(rev int64)  { r.see("compacted to %d", rev) }

func (r *rig) Moved(through int64, to *placement.Map) {
	if r.quiet {
		return // to list the rules takes time
	}
	if t := to.Transit(); t != nil {
		r.see("moving behind %d: %v to %v", through, t.From.Rules(), t.To.Rules())
		return
	}
	r.see("moved behind %d: %v", through, to.Rules())
}

func (r *rig) see(format string, args ...any) {
	if !r.quiet {
		r.seen = append(r.seen, fmt.Sprintf(format, args...))
	}
}

func cmd(req proto.Message) command.Command {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		panic(err)
	}
	return command.Command{Kind: kindOf(req), Body: body}
}

// opening is a lease for a session.
type opening struct{ *pb.LeaseGrantRequest }

func kindOf(req proto.Message) command.Kind {
	switch req.(type) {
	case opening:
		return command.SessionOpen
	case *pb.PutRequest:
		return command.Put
	case *pb.DeleteRangeRequest:
		return command.DeleteRange
	case *pb.TxnRequest:
		return command.Txn
	case *pb.CompactionRequest:
		return command.Compact
	case *pb.LeaseGrantRequest:
		return command.LeaseGrant
	case *pb.LeaseRevokeRequest:
		return command.LeaseRevoke
	case *pb.LeaseCheckpointRequest:
		return command.LeaseCheckpoint
	case *pb.AlarmRequest:
		return command.Alarm
	case *pb.RangeRequest:
		return command.Range
	case *pb.WatchCreateRequest:
		return command.Watch
	}
	panic(fmt.Sprintf("no command for %T", req))
}

// apply runs requests as one entry, local if they all fit into one partition.
func (r *rig) apply(stamp int64, reqs ...proto.Message) []Result {
	e := command.Entry{Stamp: stamp}
	var parts placement.Set
	for _, req := range reqs {
		e.Commands = append(e.Commands, cmd(req))
		parts |= r.Parts(req)
	}
	results := make([]Result, len(reqs))
	r.entry(&e, parts, func(i int, res Result) { results[i] = res })
	return results
}

func (r *rig) entry(e *command.Entry, parts placement.Set, reply Reply) {
	r.execute(e, parts, reply)
	for !r.held && r.Placement().Transit() != nil {
		r.step(0, 1000, nil)
	}
}

// step carries out the next step of a transit; without a stamp it takes no revision,
// so that stories can leave them out.
func (r *rig) step(stamp int64, budget int, reply Reply) *command.Step {
	if r.last = r.Ahead(store.Budget{Keys: budget, Visits: budget}); r.last == nil {
		r.last = &command.Step{}
	}
	r.move(stamp, reply)
	return r.last
}

// move carries out the last step.
func (r *rig) move(stamp int64, reply Reply) {
	e := command.Entry{Stamp: stamp, Commands: []command.Command{{Kind: command.Move, Body: r.last.AppendTo(nil)}}}
	r.execute(&e, r.StepParts(r.last), reply)
}

// leaseNumber is that of a lease which the last entry has granted.
func (r *rig) leaseNumber() uint64 { return numbers(1, r.index) }

func (r *rig) execute(e *command.Entry, parts placement.Set, reply Reply) {
	r.index++
	if e.Origin == 0 {
		e.Origin, e.Seq = 1, r.index
	}
	if parts.Len() == 1 {
		r.Local(parts.First(), r.index, 1, e, reply)
		return
	}
	e.Parts = parts
	var at []Arrival
	for p := range parts.Each() {
		at = append(at, Arrival{p, r.index, 1})
	}
	r.Rendezvous(at, e, reply)
}

// short is a value on one line.
func short(value []byte) string {
	if bytes.ContainsRune(value, '\n') {
		return fmt.Sprintf("<%d bytes>", len(value))
	}
	return string(value)
}

func formatKv(kv *mvccpb.KeyValue) string {
	s := fmt.Sprintf("%s=%s", kv.Key, short(kv.Value))
	s += fmt.Sprintf(" (created %d, mod %d, version %d", kv.CreateRevision, kv.ModRevision, kv.Version)
	if kv.Lease != 0 {
		s += fmt.Sprintf(", lease %d", kv.Lease)
	}
	return s + ")"
}

func formatChange(c store.Change) string {
	s := "put " + formatKv(c.Kv.Message())
	if c.Delete {
		s = fmt.Sprintf("delete %s", c.Kv.Key())
	}
	if c.Prev.Exists() {
		s += fmt.Sprintf(" was %s", short(c.Prev.Value()))
	}
	if c.Hides != nil {
		s += ", hidden from"
		for _, client := range []string{Anonymous, "alice", "bob"} {
			if c.Hides(client) {
				s += " " + client
			}
		}
	}
	return s
}

func formatResult(r Result) string {
	if r.Err != nil {
		return fmt.Sprintf("error at %d: %v", r.Rev, r.Err)
	}
	return formatResponse(r.Response, "")
}

// formatResponse writes a response on one line, and what it contains on further
// ones below it, indented.
func formatResponse(resp proto.Message, indent string) string {
	var b strings.Builder
	in := indent + "  "
	kvs := func(name string, kvs ...*mvccpb.KeyValue) {
		for _, kv := range kvs {
			if kv != nil {
				fmt.Fprintf(&b, "\n%s%s%s", in, name, formatKv(kv))
			}
		}
	}
	switch r := resp.(type) {
	case *pb.PutResponse:
		fmt.Fprintf(&b, "put at %d", r.Header.Revision)
		kvs("before ", r.PrevKv)
	case *pb.DeleteRangeResponse:
		fmt.Fprintf(&b, "deleted %d at %d", r.Deleted, r.Header.Revision)
		kvs("before ", r.PrevKvs...)
	case *pb.RangeResponse:
		fmt.Fprintf(&b, "range at %d, count %d", r.Header.Revision, r.Count)
		if r.More {
			b.WriteString(", more")
		}
		kvs("", r.Kvs...)
	case *pb.TxnResponse:
		fmt.Fprintf(&b, "txn at %d, held %v", r.Header.Revision, r.Succeeded)
		for _, op := range r.Responses {
			fmt.Fprintf(&b, "\n%s%s", in, formatOp(op, in))
		}
	case *pb.LeaseGrantResponse:
		fmt.Fprintf(&b, "lease %d for %d s at %d", r.ID, r.TTL, r.Header.Revision)
	case *pb.AlarmResponse:
		fmt.Fprintf(&b, "alarms at %d: %v", r.Header.Revision, formatAlarms(r.Alarms))
	case interface{ GetHeader() *pb.ResponseHeader }:
		fmt.Fprintf(&b, "done at %d", r.GetHeader().GetRevision())
	}
	return b.String()
}

func formatOp(op *pb.ResponseOp, indent string) string {
	switch r := op.GetResponse().(type) {
	case *pb.ResponseOp_ResponseRange:
		return formatResponse(r.ResponseRange, indent)
	case *pb.ResponseOp_ResponsePut:
		return formatResponse(r.ResponsePut, indent)
	case *pb.ResponseOp_ResponseDeleteRange:
		return formatResponse(r.ResponseDeleteRange, indent)
	case *pb.ResponseOp_ResponseTxn:
		return formatResponse(r.ResponseTxn, indent)
	}
	return "nothing"
}

func formatAlarms(list []*pb.AlarmMember) string {
	var s []string
	for _, a := range list {
		s = append(s, fmt.Sprintf("%v of %d", a.Alarm, a.MemberID))
	}
	return "[" + strings.Join(s, ", ") + "]"
}
