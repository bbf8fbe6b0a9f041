package sim

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
)

// flight is writes that go out together.
type flight struct {
	known known
	legs  []*leg
	left  int
	held  bool
}

// leg is one write of a flight.
type leg struct {
	op    *session.Op
	write replica.Write
	out   replica.Outcome
}

// who says on whose behalf requests come.
func (h *sessionHost) who() (client string, lease int64) { return "", h.id }

// Plan implements session.Host.
func (h *sessionHost) Plan(op *session.Op) session.Plan {
	p := h.route(op, op.Request.(*session.Request))
	if p.Class == session.Write && h.l.sv.c.mutation.WithoutHome && !p.Alone {
		p.Parts = placement.Of(0)
	}
	if p.Class == session.Read && h.sentBefore(op) {
		p.Parts = h.l.core.machine.Placement().All()
	}
	return p
}

func (h *sessionHost) route(op *session.Op, r *session.Request) session.Plan {
	m := h.l.core.machine
	switch r.Kind {
	case stoapb.Kind_PUT:
		if r.Message == nil {
			if !m.Extensions().Concerns(r.Key) {
				h.plan = apply.Plan{Parts: placement.Of(m.Placement().Partition(r.Key))}
				return session.Plan{Class: session.Write, Parts: h.plan.Parts}
			}
			r.Message = decoded(r.Body, new(pb.PutRequest))
		}
		return h.planWrite(command.Put, r)
	case stoapb.Kind_DELETE_RANGE:
		return h.planWrite(command.DeleteRange, r)
	case stoapb.Kind_TXN:
		if readOnly(r.Message.(*pb.TxnRequest)) {
			return h.planRead(command.Txn, r)
		}
		return h.planWrite(command.Txn, r)
	case stoapb.Kind_RANGE:
		return h.planRange(op, r)
	case stoapb.Kind_WATCH:
		return h.planWatch(op, r)
	case stoapb.Kind_CANCEL:
		return session.Plan{Class: session.Act}
	case stoapb.Kind_SYNC, stoapb.Kind_PROGRESS:
		return session.Plan{Class: session.Read, Parts: m.Placement().All(), Strict: true}
	case stoapb.Kind_CLOSE:
		h.plan = apply.Plan{Parts: m.Placement().All()}
		return session.Plan{Class: session.Write, Parts: h.plan.Parts, Alone: true}
	}
	panic("the simulation doesn't know this kind of request")
}

func (h *sessionHost) planWrite(kind command.Kind, r *session.Request) session.Plan {
	h.plan = h.l.core.machine.Plan(kind, r.Message, h.who)
	return session.Plan{Class: session.Write, Parts: h.plan.Parts}
}

func decoded(body []byte, m proto.Message) proto.Message {
	if err := proto.Unmarshal(body, m); err != nil {
		panic(err)
	}
	return m
}

// Write implements session.Host. The write was planned just now; it goes out with
// its neighbours.
func (h *sessionHost) Write(op *session.Op, parts placement.Set, home int, pred uint64) {
	if h.flight == nil {
		h.flight = &flight{known: h.l.known()}
	}
	if pred != 0 {
		h.l.sv.c.stats.Pipelined++
	}
	r, mut := op.Request.(*session.Request), &h.l.sv.c.mutation
	w := replica.Write{Parts: parts, Home: home, Session: true}
	switch {
	case r.Kind == stoapb.Kind_CLOSE:
		h.leaving = true
		body, _ := proto.Marshal(&pb.LeaseRevokeRequest{ID: h.id})
		w.Command, w.Session, w.System = command.Command{Kind: command.LeaseRevoke, Body: body}, false, true
	case mut.WithoutNumbers:
		w.Command = command.Command{Kind: kinds[r.Kind], Body: r.Body}
	default:
		if mut.WithoutHome {
			w.Parts, w.Home = h.plan.Parts, h.plan.Parts.First()
		}
		if mut.WithoutPred || mut.WithoutHome {
			pred = 0
		}
		w.Command = h.command(op, r, pred)
	}
	h.flight.legs = append(h.flight.legs, &leg{op: op, write: w})
}

var kinds = map[stoapb.Kind]command.Kind{
	stoapb.Kind_PUT: command.Put, stoapb.Kind_DELETE_RANGE: command.DeleteRange, stoapb.Kind_TXN: command.Txn,
	stoapb.Kind_RANGE: command.Range,
}

// command is the write as it goes into the log.
func (h *sessionHost) command(op *session.Op, r *session.Request, pred uint64) command.Command {
	q := command.Sequenced{Session: h.id, Seq: op.Seq, Pred: pred, Answered: min(h.answered, op.Seq-1), Kind: kinds[r.Kind], Body: r.Body}
	if call := h.plan.Call; call != nil {
		call.Body = r.Body
		q.Kind, q.Body = command.Extended, call.AppendTo(nil)
	}
	return command.Command{Kind: command.InSession, Body: q.AppendTo(nil)}
}

// launch sends out what has been collected.
func (h *sessionHost) launch() {
	f := h.flight
	if f == nil {
		return
	}
	h.flight = nil
	f.left = len(f.legs)
	var batch []*replica.Write
	for _, l := range f.legs {
		l.write.Done = func(out replica.Outcome) { h.back(f, l, out) }
		batch = append(batch, &l.write)
	}
	if h.l.sv.c.mutation.WithoutHome { // a run has one way
		for _, w := range batch {
			f.known.c.replica.Submit(w)
		}
		return
	}
	f.known.c.replica.SubmitRun(batch)
}

// back takes one write's outcome.
func (h *sessionHost) back(f *flight, l *leg, out replica.Outcome) {
	l.out = out
	if f.left--; f.left == 0 {
		h.put(func(in *sessionInbox) { in.landed = append(in.landed, f) })
	}
}

// land tells the order what became of writes.
func (h *sessionHost) land(f *flight) {
	if f.anew() && h.hold(f) {
		return
	}
	for _, l := range f.legs {
		h.order.Wrote(l.op, h.outcome(l.op, &l.out))
	}
}

func (f *flight) anew() bool {
	for _, l := range f.legs {
		if err := l.out.Err; err != nil && (errors.Is(err, fault.Moved) || errors.Is(err, fault.TooManyRequests)) {
			return true
		}
	}
	return false
}

// hold keeps a flight back, once, that would have to go the same way again.
func (h *sessionHost) hold(f *flight) bool {
	if f.held || h.l.known() != f.known && !errors.Is(f.legs[0].out.Err, fault.TooManyRequests) {
		return false
	}
	f.held = true
	h.l.after(10*time.Millisecond, "session writes again", uint64(h.id), func() {
		h.put(func(in *sessionInbox) { in.landed = append(in.landed, f) })
	})
	return true
}

func (h *sessionHost) outcome(op *session.Op, out *replica.Outcome) session.Outcome {
	r, err, now := op.Request.(*session.Request), out.Err, h.l.sv.c.loop.now
	switch {
	case err == nil, r.Kind == stoapb.Kind_CLOSE && errors.Is(err, fault.LeaseNotFound):
		h.moved = 0
		r.Response, op.Revision = out.Response, out.Rev
		if m, ok := out.Response.(answered); ok {
			op.Revision = m.GetHeader().GetRevision()
		}
		op.Reflects = r.Kind != stoapb.Kind_PUT || r.Message != nil
		if r.Kind == stoapb.Kind_CLOSE {
			r.Response, op.Reflects = nil, false
		}
		return session.Answered
	case errors.Is(err, fault.Moved), errors.Is(err, fault.TooManyRequests):
		h.l.sv.c.stats.Rerouted++
		if h.moved == 0 {
			h.moved = now
		} else if now-h.moved > requestTicks*tickInterval {
			h.lost = fault.Timeout
			return session.Unknown
		}
		return session.Moved
	case errors.Is(err, fault.SessionGap):
		return session.Gap
	case passing(err), errors.Is(err, fault.Timeout), errors.Is(err, fault.SessionGone):
		h.lost = err
		return session.Unknown
	}
	h.moved = 0
	op.Err = err
	return session.Answered
}
