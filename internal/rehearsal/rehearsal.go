package rehearsal

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/script"
	"github.com/stoa-kv/stoa/internal/store"
)

// Rehearsal is a state machine of its own. It is not for concurrent use.
type Rehearsal struct {
	machine *apply.Machine
	index   uint64
	watches []*watch
	report  *Report // of the current request

	profiles map[string]*script.Profile // of each extension that has run; nil: not wanted
}

// Caller identifies the client of a request, as its metadata do on a server.
type Caller struct {
	Client string // "" is apply.Anonymous
	Lease  int64
}

// New returns a rehearsal with no keys.
func New() *Rehearsal {
	r := &Rehearsal{}
	o := witness{r}
	r.machine = apply.New(apply.Config{
		Stores: []*store.Store{store.New(nil)}, Leases: lease.NewTable(), Placement: placement.New(1), Sink: o, Meter: o,
	})
	return r
}

// Register puts a source, on behalf of its owner.
func (r *Rehearsal) Register(name string, source []byte, owner Caller) error {
	return r.Do(&pb.PutRequest{Key: extension.SourceKey(name), Value: source}, owner).Err
}

// Profiled has the steps of all further calls counted.
func (r *Rehearsal) Profiled() { r.profiles = map[string]*script.Profile{} }

// Profile returns the number of calls of an extension since [Rehearsal.Profiled], and
// their steps by line.
func (r *Rehearsal) Profile(name string) (calls int64, lines []script.LineUsage) {
	if p := r.profiles[name]; p != nil {
		return p.Usage()
	}
	return 0, nil
}

// Extensions are those that are registered.
func (r *Rehearsal) Extensions() *extension.Registry { return r.machine.Extensions() }

// HasLease tells whether a lease has been granted and hasn't ended.
func (r *Rehearsal) HasLease(id int64) bool { return r.machine.Leases.Has(id) }

// Do carries out a request: a put, delete, range or txn, or the grant or the end of
// a lease.
func (r *Rehearsal) Do(req proto.Message, c Caller) *Report {
	kind, ok := kindOf(req)
	if !ok {
		return &Report{Err: fmt.Errorf("rehearsal: a %T can't be rehearsed", req)}
	}
	r.report = &Report{}
	who := func() (string, int64) { return c.Client, c.Lease }
	if kind != command.Range {
		r.log(kind, req, r.machine.Plan(kind, req, who))
	} else if p, handled := r.machine.PlanRead(kind, req, who); handled {
		r.log(kind, req, p)
	} else {
		q := req.(*pb.RangeRequest)
		resp, err := r.machine.Range(q, r.machine.Parts(q), 0, 0)
		if r.report.Err = err; err == nil {
			r.report.Response = resp.Message()
		}
	}
	return r.finish()
}

func kindOf(req proto.Message) (command.Kind, bool) {
	switch req.(type) {
	case *pb.PutRequest:
		return command.Put, true
	case *pb.DeleteRangeRequest:
		return command.DeleteRange, true
	case *pb.TxnRequest:
		return command.Txn, true
	case *pb.RangeRequest:
		return command.Range, true
	case *pb.LeaseGrantRequest:
		return command.LeaseGrant, true
	case *pb.LeaseRevokeRequest:
		return command.LeaseRevoke, true
	}
	return 0, false
}

// log executes a request as the only command of the next log entry.
func (r *Rehearsal) log(kind command.Kind, req proto.Message, p apply.Plan) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		r.report.Err = fmt.Errorf("rehearsal: encoding the request: %w", err)
		return
	}
	if p.Call != nil {
		r.report.Handler = p.Call.Name
	}
	r.index++
	r.machine.Local(0, r.index, 1, &command.Entry{Commands: []command.Command{p.Command(kind, body)}}, func(_ int, res apply.Result) {
		r.report.Response, r.report.Err = res.Response, res.Err
	})
}

// finish completes the report with the events that open watches get of the changes.
func (r *Rehearsal) finish() *Report {
	done := r.report
	r.report = nil
	for i, w := range r.watches {
		for _, c := range done.Changes {
			if w.wants(c) {
				done.Events = append(done.Events, Event{i + 1, c})
			}
		}
	}
	return done
}
