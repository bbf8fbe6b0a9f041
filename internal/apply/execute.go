package apply

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// several stands for "more than one" where one partition would be named.
const several = -1

// execution is the running of one entry, or of one transaction that only reads,
// over stores that are locked.
type execution struct {
	m       *Machine
	parts   placement.Set
	local   int            // the only partition, or several
	index   uint64         // of a local entry
	first   Arrival        // of partition 0 at a rendezvous, if it takes part
	answers bool           // a request waits for the responses
	entry   *command.Entry // nil outside of the log
	// at is the revision of reads that set none: 0 for the newest.
	at       int64
	readOnly bool // outside of the log

	running // the command under way

	// In a local entry each command's changes follow those of the last one, and
	// from is where its own begin; in a rendezvous they are per partition.
	changes []store.Change
	from    int
	spread  [][]store.Change
	// deltas are the changes of the command to what is used of quotas, until they are settled or undone.
	deltas  []delta
	deltaOf map[[2]int32]int // if there are many

	// putAnswers are allocated for the whole entry and given out one by one.
	putAnswers []putAnswer
	commands   int
}

// running is what there is of one command; nothing of it is left for the next one.
type running struct {
	// user asks for it; nil: everything is permitted.
	user *auth.User
	// runAs is the user as whom a handler of an extension runs.
	runAs *auth.User
	// tenants are the quotas in force, nil for none.
	tenants *tenants
	// past holds the results of a transaction's ranges that read a state before it, in
	// the order in which a walk reaches them; see check.
	past []found

	// Its kind (that of the inner one for a session's), that of the client's request inside, and its
	// revision if it writes.
	kind    command.Kind
	asked   command.Kind
	rev     int64
	stamped bool
	sub     int64

	// Of extensions: the client of the command, whether extensions have been asked, and
	// how many of the changes, the first ones, are keys whose lease has ended.
	client  string
	lease   int64 // the client's, 0 for none
	decided bool
	expired int64
	fresh   *extension.Extension // the one that this command registers
	// language is the version of the language that it is registered for.
	language int
	// The work of extensions for this command: how many of the changes are its own, why
	// the others were made, and the state before it, of each partition.
	handler   *extension.Extension // that handled the request
	awaited   []byte               // the key that it makes the client of a watch wait for
	callSteps int64
	about     []byte // the first key of the request, for the meter
	working   int64  // since when extensions have run for the command, 0: none has
	worked    int64  // until when
	deletion  extension.Work
	tallies   []*tally
	tallyOf   map[*extension.Extension]*tally // if there are many
	own       int64
	causes    []cause
	marks     []store.Mark
	told      int      // changes of its own whose events have all been delivered to handlers
	ending    int64    // the lease that the command ends, 0 for none
	leased    [][]byte // its keys
	ended     int      // how many of them, from the first, are deleted by the command
	expiring  int      // and how many by the present attempt
	// wide says that the command needs every partition in which its keys may be during
	// a transit: one of a session, whose copies must meet.
	wide           bool
	touched, renew bool     // keys under /em/ were changed; so the registry must be
	renamed        []string // the extensions whose sources were put or deleted
}

// run executes an entry's commands one after the other.
func (x *execution) run(e *command.Entry, results []Result) []Result {
	if x.local != several {
		x.changes = make([]store.Change, 0, len(e.Commands))
	} else {
		x.spread = make([][]store.Change, len(x.m.Stores))
	}
	x.entry, x.commands = e, len(e.Commands)
	x.checkStamp(e)
	stamp := e.Stamp
	var tally Tally
	began := x.m.began()
	sampled, every := sampling(e)
	for i := range e.Commands {
		c := &e.Commands[i]
		x.begin(stamp)
		r := x.whole(c)
		tally.count(x.kind, r.Err)
		x.settle()
		x.publish()
		if i == sampled && x.m.Meter != nil {
			x.sample(c, every)
			sampled += every
		}
		if x.renew {
			x.renewRegistry()
		}
		if stamp > 0 && c.Kind.MayWrite() {
			stamp++
		}
		if x.answers {
			results = append(results, r)
		}
	}
	if x.m.Meter != nil {
		x.m.Meter.Applied(e, tally, x.m.Meter.Now()-began)
	}
	return results
}

func (t *Tally) count(k command.Kind, err error) {
	t.All[k]++
	if err != nil {
		t.Failed[k]++
	}
}

// begin fixes a command's revision: its stamp, which is above every revision here, or
// the next one where there are no stamps.
func (x *execution) begin(stamp int64) {
	tallies, causes, marks := x.tallies[:0], x.causes[:0], x.marks[:0]
	x.running = running{}
	x.tallies, x.causes, x.marks = tallies, causes, marks
	x.language = 1
	x.tenants = x.m.tenants.Load()
	x.stamped = stamp > 0
	if x.rev = stamp; !x.stamped {
		x.rev = x.lastRev() + 1
	}
	x.mark()
}

// lastRev is the highest revision written in the execution's partitions.
func (x *execution) lastRev() int64 {
	if x.local != several {
		return x.m.Stores[x.local].Rev()
	}
	last := int64(0)
	for p := range x.parts.Each() {
		last = max(last, x.m.Stores[p].Rev())
	}
	return last
}

// before is the revision of the state that the command finds.
func (x *execution) before() int64 { return x.rev - 1 }

// current is the revision of the state that a read inside the command sees.
func (x *execution) current() int64 {
	if x.sub > 0 {
		return x.rev
	}
	return x.before()
}

// answerRev is the revision that the command answers with. One that could write
// and didn't answers with its stamp, which no other command ever gets.
func (x *execution) answerRev(mayWrite bool) int64 {
	if mayWrite && x.stamped {
		return x.rev
	}
	return x.current()
}

func (x *execution) header(mayWrite bool) *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: x.answerRev(mayWrite)}
}

// publish hands the command's changes to the sink.
func (x *execution) publish() {
	if x.sub == 0 {
		return
	}
	sink := x.m.Sink
	if x.local != several {
		if sink != nil {
			to := len(x.changes)
			sink.Changes(x.local, x.rev, x.changes[x.from:to:to])
		}
		x.from = len(x.changes)
		return
	}
	for p, changes := range x.spread {
		if len(changes) > 0 && sink != nil {
			sink.Changes(p, x.rev, changes)
		}
		x.spread[p] = nil
	}
}

// published tells whether the sink has all changes of the command.
func (x *execution) published() bool {
	pending := len(x.changes) - x.from
	for _, changes := range x.spread {
		pending += len(changes)
	}
	return pending == 0
}

// store returns the store of a key among the execution's partitions.
func (x *execution) store(key []byte) (int, *store.Store) {
	p := x.local
	if p == several {
		p = x.m.Placement().Partition(key)
	}
	return p, x.m.Stores[p]
}

// delete removes a key, if it is there.
func (x *execution) delete(key []byte) (store.Change, bool) {
	p, s := x.store(key)
	if x.tenants != nil {
		x.account(p, key, sizeOf(s.Get(key)), -1)
	}
	c, ok := s.Delete(store.Revision{Main: x.rev, Sub: x.sub}, key)
	if ok {
		x.record(p, c)
	}
	return c, ok
}

func (x *execution) record(p int, c store.Change) {
	x.sub++
	x.touched = x.touched || bytes.HasPrefix(c.Kv.Key(), []byte(extension.Root))
	if x.local != several {
		x.changes = append(x.changes, c)
	} else {
		x.spread[p] = append(x.spread[p], c)
	}
}

// whole executes one command with all that follows from it.
func (x *execution) whole(c *command.Command) Result {
	if err := x.identify(c); err != nil {
		x.kind = known(c.Kind)
		return x.failed(err)
	}
	if c.Kind == command.InSession {
		x.kind = c.Kind
		return x.inSession(c.Body)
	}
	return x.followed(x.command(c))
}

// known is a kind as it is counted: 0 for one of a later version.
func known(k command.Kind) command.Kind {
	if k >= command.Kinds {
		return 0
	}
	return k
}

// admissible refuses a kind of commands, whatever they contain, that the cluster's version doesn't have, that an alarm forbids,
// or that takes the role root.
func (x *execution) admissible(k command.Kind) error {
	if k.Since() > x.m.Level() {
		return fault.VersionTooLow
	}
	if err := x.admit(k); err != nil || !administers(k) {
		return err
	}
	return x.user.MustBeRoot()
}

// command executes a client's command.
func (x *execution) command(c *command.Command) Result {
	x.kind = known(c.Kind)
	x.asked = x.kind
	if err := x.admissible(c.Kind); err != nil {
		return x.failed(err)
	}
	switch c.Kind {
	case command.Put:
		return x.putCommand(c.Body)
	case command.Extended:
		return x.extended(c.Body)
	case command.DeleteRange:
		return handle(x, c, &pb.DeleteRangeRequest{}, x.deleteRangeCommand)
	case command.Txn:
		req := &pb.TxnRequest{}
		if kvwire.ReadTxn(c.Body, req) {
			return carry(x, c.Kind, req, x.txnCommand)
		}
		return handle(x, c, req, x.txnCommand)
	case command.Compact:
		return handle(x, c, &pb.CompactionRequest{}, x.compact)
	case command.LeaseGrant:
		return handle(x, c, &pb.LeaseGrantRequest{}, x.leaseGrant)
	case command.SessionOpen:
		return handle(x, c, &pb.LeaseGrantRequest{}, x.openSession)
	case command.LeaseRevoke:
		return handle(x, c, &pb.LeaseRevokeRequest{}, x.leaseRevoke)
	case command.LeaseCheckpoint:
		return handle(x, c, &pb.LeaseCheckpointRequest{}, x.leaseCheckpoint)
	case command.Alarm:
		return handle(x, c, &pb.AlarmRequest{}, x.alarm)
	case command.MemberPublish:
		return handle(x, c, &pb.Member{}, x.memberPublish)
	case command.MemberChange:
		return x.memberChange(c.Body)
	case command.MemberAnnounce:
		return x.memberAnnounce(c.Body)
	case command.ClusterVersion:
		return x.clusterVersion(c.Body)
	case command.Move:
		return x.move(c.Body)
	case command.Place:
		return x.wish(c.Body)
	case command.Resize:
		return x.resize(c.Body)
	case command.Auth:
		return x.authCommand(c.Body)
	case command.Quota:
		return x.quotaCommand(c.Body)
	case command.Check:
		return x.examine(c.Body)
	case command.Verdict:
		return x.verdict(c.Body)
	}
	return x.failed(fmt.Errorf("apply command of unknown kind %d: %w", c.Kind, fault.Internal))
}

// handle reads a command's body and runs it.
func handle[Req, Resp proto.Message](x *execution, c *command.Command, req Req, run func(Req) (Resp, error)) Result {
	if err := proto.Unmarshal(c.Body, req); err != nil {
		return x.failed(unreadable(c.Kind, c.Body))
	}
	return carry(x, c.Kind, req, run)
}

// carry runs a command that has been read.
func carry[Req, Resp proto.Message](x *execution, kind command.Kind, req Req, run func(Req) (Resp, error)) Result {
	if err := x.covers(x.m.parts(req, x.wide)); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", kind, err))
	}
	resp, err := run(req)
	if err != nil {
		return x.failed(err)
	}
	return x.done(kind.MayWrite(), resp)
}

// done is the result of a command that has been carried out.
func (x *execution) done(mayWrite bool, resp proto.Message) Result {
	r := Result{Rev: x.answerRev(mayWrite)}
	if x.answers {
		r.Response = resp
	}
	return r
}

func (x *execution) failed(err error) Result {
	return Result{Err: err, Rev: x.current()}
}

// unreadable is the fault of a body that is no request. The server that
// proposed it had decoded it, so the cause is a bug of the server. The decoder's own
// text is left out: protobuf varies it from build to build on purpose.
func unreadable(k command.Kind, body []byte) error {
	return fmt.Errorf("apply %v: its body of %d bytes is no request: %w", k, len(body), fault.Internal)
}

// covers refuses access to stores that are not locked: a command that reaches into a
// partition that doesn't take part was routed by a map that has been replaced since.
// System commands need all of them, since system state has one copy and no other
// command may execute while it changes.
func (x *execution) covers(need placement.Set) error {
	if need&^x.parts != 0 {
		return fmt.Errorf("needs partitions %v, runs in %v: %w", need, x.parts, fault.Moved)
	}
	return nil
}
