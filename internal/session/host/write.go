package host

import (
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// writeBatch is writes that are submitted together: through one partition, in
// order. The session processes their outcomes when all are known.
type writeBatch struct {
	s      *Session
	known  known
	writes []batchedWrite
	left   atomic.Int32
	held   bool
	more   int    // requests that were waiting when it was begun
	arena  []byte // that bodies are encoded in

	pipelined int64 // number of writes submitted before the one before was answered
}

// Admit implements session.Host.
func (d *driver) Admit(op *session.Op) bool {
	load := &d.plan.Load
	if load.Extension == "" || d.cfg.Lane == nil || d.hopeless(op) {
		d.endTurn() // of a write whose extension, or permission, has been removed meanwhile
		return true
	}
	switch {
	case d.turn != nil:
		return d.turn.Admitted()
	case d.full:
		return false
	}
	wake := func() { d.s.put(func(in *inbox) { in.admitted = true }) }
	turn, now, err := d.cfg.Lane.Enter(load.Extension, load.Cost, wake)
	if err != nil {
		d.full = true
		d.server.After(pauseBetween, wake)
		return false
	}
	d.turn = turn
	return now
}

// endTurn ends the turn of the next request, which needs none.
func (d *driver) endTurn() {
	d.turn.End()
	d.turn = nil
}

// hopeless reports whether the log is going to refuse a write for lack of a permission: it makes no work for
// extensions.
func (d *driver) hopeless(op *session.Op) bool {
	return d.server.State().Machine.Auth().May(d.s.user, op.Request.(*session.Request).Message) != nil
}

// batchedWrite is one write of a writeBatch.
type batchedWrite struct {
	op    *session.Op
	turn  *throttle.Turn
	write replica.Write
	out   replica.Outcome
}

// arenaBytes is how much memory bodies share: less would be allocated too often,
// more would be held by the last of them for too long.
const arenaBytes = 16 << 10

// Write implements session.Host. The write was planned just now; it is
// submitted with its neighbours.
func (d *driver) Write(op *session.Op, parts placement.Set, home int, pred uint64) {
	f := d.batch
	if f == nil {
		waiting, _ := d.order.Waiting()
		f = &writeBatch{s: d.s, known: d.known(), more: waiting, writes: make([]batchedWrite, 0, min(waiting, 64))}
		d.batch = f
	}
	if pred != 0 {
		f.pipelined++
	}
	r := op.Request.(*session.Request)
	w := replica.Write{Parts: parts, Home: int32(home), Session: true}
	if r.Kind == stoapb.Kind_CLOSE {
		d.s.leave()
		body, _ := proto.Marshal(&pb.LeaseRevokeRequest{ID: d.s.id})
		w.Command, w.Session, w.System = command.Command{Kind: command.LeaseRevoke, User: d.s.user, Body: body}, false, true
	} else {
		w.Command = d.command(op, r, pred)
	}
	if d.plan.Load.Extension != "" {
		d.server.Grows(0)
	}
	f.writes = append(f.writes, batchedWrite{op: op, turn: d.turn, write: w})
	d.turn = nil
}

var kinds = [...]command.Kind{
	stoapb.Kind_PUT: command.Put, stoapb.Kind_DELETE_RANGE: command.DeleteRange, stoapb.Kind_TXN: command.Txn,
	stoapb.Kind_RANGE: command.Range, stoapb.Kind_WATCH: command.Watch,
}

// command is the command of a write.
func (d *driver) command(op *session.Op, r *session.Request, pred uint64) command.Command {
	c := d.plan.Command(kinds[r.Kind], r.Body)
	q := command.Sequenced{Session: d.s.id, Seq: op.Seq, Pred: pred, Answered: min(d.answered, op.Seq-1), Kind: c.Kind, Body: c.Body}
	return command.Command{Kind: command.InSession, User: d.s.user, Body: d.batch.encode(&q)}
}

func (f *writeBatch) encode(q *command.Sequenced) []byte {
	const head = 1 + 8 + 3*10 // of a sequenced write, at most
	if need := head + len(q.Body); cap(f.arena)-len(f.arena) < need {
		likely := need * (f.more - len(f.writes)) // if those to come are like this one
		f.arena = make([]byte, 0, max(need, min(likely, arenaBytes)))
	}
	from := len(f.arena)
	f.arena = q.AppendTo(f.arena)
	return f.arena[from:len(f.arena):len(f.arena)]
}

// launch submits the collected writes.
func (d *driver) launch() {
	f := d.batch
	if f == nil {
		return
	}
	d.batch = nil
	f.arena = nil
	f.left.Store(int32(len(f.writes)))
	batch := make([]*replica.Write, len(f.writes))
	for i := range f.writes {
		l := &f.writes[i]
		l.write.Done = func(out replica.Outcome) { f.done(l, out) }
		batch[i] = &l.write
	}
	d.cfg.Counts.Pipelined.Add(f.pipelined)
	f.known.state.Replica.SubmitRun(batch)
}

// done takes one write's outcome, on any goroutine.
func (f *writeBatch) done(l *batchedWrite, out replica.Outcome) {
	l.turn.End()
	l.out = out
	if f.left.Add(-1) == 0 {
		f.s.put(func(in *inbox) { in.finished = append(in.finished, f) })
	}
}

// finishWrites passes the outcomes of writes to the order.
func (d *driver) finishWrites(f *writeBatch) {
	if f.anew() && d.hold(f) {
		return
	}
	for i := range f.writes {
		l := &f.writes[i]
		d.order.Wrote(l.op, d.outcome(l.op, &l.out))
	}
}

// anew reports whether writes of the batch have to be planned anew.
func (f *writeBatch) anew() bool {
	for i := range f.writes {
		if err := f.writes[i].out.Err; err != nil && (errors.Is(err, fault.Moved) || pausing(err)) {
			return true
		}
	}
	return false
}

// pausing tells whether what is planned anew has to wait even if there is another way by now: the queue
// was full, or others' writes have their turn between two steps of the session's end.
func pausing(err error) bool {
	return errors.Is(err, fault.TooManyRequests) || errors.Is(err, fault.LeaseEnding)
}

// hold delays a batch, once, that would be routed to the same place again, for this
// server knows no other yet, or that has to wait in any case.
func (d *driver) hold(f *writeBatch) bool {
	if f.held || d.known() != f.known && !pausing(f.writes[0].out.Err) {
		return false
	}
	f.held = true
	d.server.After(pauseBetween, func() { f.s.put(func(in *inbox) { in.finished = append(in.finished, f) }) })
	return true
}

const pauseBetween = 10 * time.Millisecond

func (d *driver) outcome(op *session.Op, out *replica.Outcome) session.Outcome {
	r := op.Request.(*session.Request)
	err := out.Err
	switch {
	case err == nil, r.Kind == stoapb.Kind_CLOSE && errors.Is(err, fault.LeaseNotFound):
		d.moved = time.Time{}
		r.Response, op.Revision = out.Response, out.Rev
		if h, ok := out.Response.(interface{ GetHeader() *pb.ResponseHeader }); ok {
			op.Revision = h.GetHeader().GetRevision()
		}
		op.Reflects = !r.RevisionOnly()
		if r.Kind == stoapb.Kind_CLOSE {
			r.Response, op.Reflects = nil, false
		}
		return session.Answered
	case errors.Is(err, fault.Moved), errors.Is(err, fault.TooManyRequests):
		d.cfg.Counts.Rerouted.Add(1)
		if now := d.server.Now(); d.moved.IsZero() {
			d.moved = now
		} else if now.Sub(d.moved) > d.cfg.RequestTimeout {
			d.lost = fault.Timeout
			return session.Unknown
		}
		return session.Moved
	case errors.Is(err, fault.LeaseEnding): // a step of CLOSE; the leader may take the next ones
		d.moved = time.Time{}
		return session.Moved
	case errors.Is(err, fault.SessionGap):
		return session.Gap
	case fault.Passing(err), errors.Is(err, fault.Timeout), errors.Is(err, fault.Stopped), errors.Is(err, fault.Fenced), errors.Is(err, fault.SessionGone),
		errors.Is(err, fault.UserEmpty), errors.Is(err, fault.AuthOldRevision):
		d.lost = err
		return session.Unknown
	}
	d.moved = time.Time{}
	d.cfg.Counts.Failed.Add(1)
	op.Err = err
	return session.Answered
}
