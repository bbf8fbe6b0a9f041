package node

import (
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
)

// flight is writes that go out together: through one partition, in order. The session
// looks at what became of them when the last one has come back.
type flight struct {
	s     *Session
	known known
	legs  []leg
	left  atomic.Int32
	held  bool
	arena []byte // that bodies are encoded in
}

// leg is one write of a flight.
type leg struct {
	op    *session.Op
	write replica.Write
	out   replica.Outcome
}

// arenaBytes is how much memory bodies share: less would be allocated too often,
// more would be held by the last of them for too long.
const arenaBytes = 16 << 10

// Plan implements session.Host. A read that is sent again is read at a revision that
// all partitions show here: then each of them knows which writes are in it.
func (d *driver) Plan(op *session.Op) session.Plan {
	plan := d.route(op, op.Request.(*session.Request))
	if plan.Class == session.Read && d.sentBefore(op) {
		plan.Parts = d.s.n.current().machine.Placement().All()
	}
	return plan
}

// route is the way that a request takes the first time.
func (d *driver) route(op *session.Op, r *session.Request) session.Plan {
	switch r.Kind {
	case stoapb.Kind_PUT:
		return d.planPut(op, r)
	case stoapb.Kind_DELETE_RANGE:
		return d.planWrite(op, command.DeleteRange, r)
	case stoapb.Kind_TXN:
		return d.planTxn(op, r)
	case stoapb.Kind_RANGE:
		return d.planRange(op, r)
	case stoapb.Kind_WATCH:
		return d.planWatch(op, r)
	case stoapb.Kind_CANCEL:
		return session.Plan{Class: session.Act}
	case stoapb.Kind_CLOSE:
		return session.Plan{Class: session.Write, Parts: d.s.n.current().machine.Placement().All(), Alone: true}
	default: // SYNC, PROGRESS
		return session.Plan{Class: session.Read, Parts: d.s.n.current().machine.Placement().All(), Strict: true}
	}
}

func (d *driver) planPut(op *session.Op, r *session.Request) session.Plan {
	m := d.s.n.current().machine
	if err := d.s.n.admit(d.s.n.life, len(r.Body)); err != nil {
		return refuse(op, err)
	}
	if r.Message == nil {
		if !m.Extensions().Concerns(r.Key) {
			d.plan = apply.Plan{Parts: placement.Of(m.Placement().Partition(r.Key))}
			return session.Plan{Class: session.Write, Parts: d.plan.Parts}
		}
		if err := decodeRequest(r, new(pb.PutRequest)); err != nil {
			return refuse(op, err)
		}
	}
	if err := m.Verify(r.Message.(*pb.PutRequest)); err != nil {
		return refuse(op, err)
	}
	return d.planWrite(op, command.Put, r)
}

func (d *driver) planTxn(op *session.Op, r *session.Request) session.Plan {
	txn := r.Message.(*pb.TxnRequest)
	if readOnly(txn) {
		return d.planRead(command.Txn, r)
	}
	if err := d.s.n.admit(d.s.n.life, len(r.Body)); err != nil {
		return refuse(op, err)
	}
	return d.planWrite(op, command.Txn, r)
}

func (d *driver) planWrite(op *session.Op, kind command.Kind, r *session.Request) session.Plan {
	if limit := d.s.n.cfg.MaxRequestBytes; limit > 0 && len(r.Body) > limit {
		return refuse(op, fault.RequestTooLarge)
	}
	d.plan = d.s.n.current().machine.Plan(kind, r.Message, d.who)
	return session.Plan{Class: session.Write, Parts: d.plan.Parts}
}

func refuse(op *session.Op, err error) session.Plan {
	op.Err = err
	return session.Plan{Class: session.None}
}

func decodeRequest(r *session.Request, m proto.Message) error {
	if err := proto.Unmarshal(r.Body, m); err != nil {
		return fault.Internal // the services have read it
	}
	r.Message = m
	return nil
}

// Write implements session.Host. The write was planned just now; it goes out with
// its neighbours.
func (d *driver) Write(op *session.Op, parts placement.Set, home int, pred uint64) {
	f := d.flight
	if f == nil {
		waiting, _ := d.order.Waiting()
		f = &flight{s: d.s, known: d.s.n.known(), legs: make([]leg, 0, min(waiting, 64))}
		d.flight = f
	}
	r := op.Request.(*session.Request)
	w := replica.Write{Parts: parts, Home: home, Session: true}
	if r.Kind == stoapb.Kind_CLOSE {
		d.s.leave()
		body, _ := proto.Marshal(&pb.LeaseRevokeRequest{ID: d.s.id})
		w.Command, w.Session, w.System = command.Command{Kind: command.LeaseRevoke, Body: body}, false, true
	} else {
		w.Command = d.command(op, r, pred)
	}
	f.legs = append(f.legs, leg{op: op, write: w})
}

var kinds = map[stoapb.Kind]command.Kind{
	stoapb.Kind_PUT: command.Put, stoapb.Kind_DELETE_RANGE: command.DeleteRange, stoapb.Kind_TXN: command.Txn,
	stoapb.Kind_RANGE: command.Range, stoapb.Kind_WATCH: command.Watch,
}

// command is the write as it goes into the log.
func (d *driver) command(op *session.Op, r *session.Request, pred uint64) command.Command {
	q := command.Sequenced{Session: d.s.id, Seq: op.Seq, Pred: pred, Answered: min(d.answered, op.Seq-1), Body: r.Body}
	if call := d.plan.Call; call != nil {
		call.Body = r.Body
		q.Kind, q.Body = command.Extended, call.AppendTo(nil)
	} else if q.Kind = command.Put; r.Kind != stoapb.Kind_PUT {
		q.Kind = kinds[r.Kind]
	}
	return command.Command{Kind: command.InSession, Body: d.flight.encode(&q)}
}

func (f *flight) encode(q *command.Sequenced) []byte {
	const head = 1 + 8 + 3*10 // of a sequenced write, at most
	if need := head + len(q.Body); cap(f.arena)-len(f.arena) < need {
		f.arena = make([]byte, 0, max(need, arenaBytes))
	}
	from := len(f.arena)
	f.arena = q.AppendTo(f.arena)
	return f.arena[from:len(f.arena):len(f.arena)]
}

// launch sends out what has been collected.
func (d *driver) launch() {
	f := d.flight
	if f == nil {
		return
	}
	d.flight = nil
	f.arena = nil
	f.left.Store(int32(len(f.legs)))
	batch := make([]*replica.Write, len(f.legs))
	for i := range f.legs {
		l := &f.legs[i]
		l.write.Done = func(out replica.Outcome) { f.back(l, out) }
		batch[i] = &l.write
	}
	f.known.c.replica.SubmitRun(batch)
}

// back takes one write's outcome, on whatever goroutine.
func (f *flight) back(l *leg, out replica.Outcome) {
	l.out = out
	if f.left.Add(-1) == 0 {
		f.s.put(func(in *inbox) { in.landed = append(in.landed, f) })
	}
}

// land tells the order what became of writes.
func (d *driver) land(f *flight) {
	if f.anew() && d.hold(f) {
		return
	}
	for i := range f.legs {
		l := &f.legs[i]
		d.order.Wrote(l.op, d.outcome(l.op, &l.out))
	}
}

// anew tells whether writes of the flight have to be planned anew.
func (f *flight) anew() bool {
	for i := range f.legs {
		if err := f.legs[i].out.Err; err != nil && (errors.Is(err, fault.Moved) || errors.Is(err, fault.TooManyRequests)) {
			return true
		}
	}
	return false
}

// hold keeps a flight back, once, that would have to go the same way again: this
// server knows no other yet, or the way is full.
func (d *driver) hold(f *flight) bool {
	if f.held || d.s.n.known() != f.known && !errors.Is(f.legs[0].out.Err, fault.TooManyRequests) {
		return false
	}
	f.held = true
	time.AfterFunc(pauseBetween, func() { f.s.put(func(in *inbox) { in.landed = append(in.landed, f) }) })
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
		op.Reflects = r.Kind != stoapb.Kind_PUT || r.Message != nil
		if r.Kind == stoapb.Kind_CLOSE {
			r.Response, op.Reflects = nil, false
		}
		return session.Answered
	case errors.Is(err, fault.Moved), errors.Is(err, fault.TooManyRequests):
		if d.moved.IsZero() {
			d.moved = time.Now()
		} else if time.Since(d.moved) > d.s.n.cfg.requestTimeout() {
			d.lost = fault.Timeout
			return session.Unknown
		}
		return session.Moved
	case errors.Is(err, fault.SessionGap):
		return session.Gap
	case passing(err), errors.Is(err, fault.Timeout), errors.Is(err, fault.Stopped), errors.Is(err, fault.SessionGone):
		d.lost = err
		return session.Unknown
	}
	d.moved = time.Time{}
	d.s.n.counts.failed.Add(1)
	op.Err = err
	return session.Answered
}
