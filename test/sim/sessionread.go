package sim

import (
	"errors"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
)

// known is what requests of sessions are routed by.
type known struct {
	c          *core
	placed     *placement.Map
	extensions *extension.Registry
}

func (l *life) known() known {
	return known{l.core, l.core.machine.Placement(), l.core.machine.Extensions()}
}

// sessionReads is the run of reads that waits, or is being carried out.
type sessionReads struct {
	wait  *arrivalWait
	known known
	at    int64
}

// arrivalWait is one wait of a run: for a read point, then for a revision.
type arrivalWait struct {
	parts    placement.Set
	revision int64
	deadline time.Duration
	known    known
}

// arrival is the end of one step of a wait.
type arrival struct {
	wait *arrivalWait
	err  error
}

func (h *sessionHost) planRange(op *session.Op, r *session.Request) session.Plan {
	m := h.l.core.machine
	if r.Message == nil {
		if !m.Extensions().Concerns(r.Key) {
			return session.Plan{Class: session.Read, Parts: placement.Of(m.Placement().Partition(r.Key)), Strict: r.Level == stoapb.Level_STRICT}
		}
		r.Message = decoded(r.Body, new(pb.RangeRequest))
	}
	return h.planRead(command.Range, r)
}

func (h *sessionHost) planRead(kind command.Kind, r *session.Request) session.Plan {
	m := h.l.core.machine
	if p, handled := m.PlanRead(kind, r.Message, h.who); handled {
		h.plan = p
		return session.Plan{Class: session.Write, Parts: p.Parts}
	}
	return session.Plan{Class: session.Read, Parts: m.Parts(r.Message), Strict: r.Level == stoapb.Level_STRICT}
}

// sentBefore tells whether a request was sent before, over another stream, and others
// behind it.
func (h *sessionHost) sentBefore(op *session.Op) bool {
	return op.Seq < h.before && !h.l.sv.c.mutation.ReadOvertaken
}

// overtaken tells whether writes that its session sent behind a request have taken
// effect in what it is carried out on.
func (h *sessionHost) overtaken(c *core, op *session.Op) bool {
	if !h.sentBefore(op) {
		return false
	}
	for p := range c.machine.Stores {
		if c.machine.SessionLast(p, h.id) > op.Seq {
			return true
		}
	}
	return false
}

// readNow answers a fast read; false: it isn't one.
func (h *sessionHost) readNow(op *session.Op, r *session.Request) bool {
	if r.Kind != stoapb.Kind_RANGE && r.Kind != stoapb.Kind_TXN {
		return false
	}
	plan := h.Plan(op)
	if plan.Class != session.Read {
		return false
	}
	c := h.l.core
	h.reads.known, h.reads.at = known{c: c}, c.replica.Readable(plan.Parts)
	if !h.read(op, r, plan.Parts) {
		return false
	}
	op.Unseen = true
	return true
}

// Await implements session.Host.
func (h *sessionHost) Await(strict bool, parts placement.Set, revision int64) bool {
	w := &arrivalWait{parts: parts, revision: revision, known: h.l.known()}
	if h.l.sv.c.mutation.CausalWithoutWait {
		w.revision = 0
	}
	h.reads.wait = w
	if !strict {
		return h.caughtUp(w)
	}
	h.askPoint(w)
	for i, a := range h.in.arrived { // it may be here
		if a.wait == w {
			h.in.arrived = append(h.in.arrived[:i], h.in.arrived[i+1:]...)
			if a.err != nil {
				h.again(w, a.err)
				return false
			}
			return h.caughtUp(w)
		}
	}
	return false
}

func (h *sessionHost) askPoint(w *arrivalWait) {
	w.known = h.l.known()
	w.known.c.replica.ReadPoint(w.parts, func(err error) { h.arrived(w, err) })
}

func (h *sessionHost) arrived(w *arrivalWait, err error) {
	h.put(func(in *sessionInbox) { in.arrived = append(in.arrived, arrival{w, err}) })
}

// again asks again after an error about leadership, as long as a read may take.
func (h *sessionHost) again(w *arrivalWait, err error) {
	now := h.l.sv.c.loop.now
	switch {
	case !passing(err):
		h.finish(err)
		return
	case w.deadline == 0:
		w.deadline = now + requestTicks*tickInterval
	case now > w.deadline:
		h.finish(fault.Timeout)
		return
	}
	h.l.after(10*time.Millisecond, "session reads again", uint64(h.id), func() { h.askPoint(w) })
}

// arrive goes on with a wait.
func (h *sessionHost) arrive(a arrival) {
	w := a.wait
	switch {
	case w != h.reads.wait:
	case errors.Is(a.err, errNotCaughtUp):
		h.finish(fault.Timeout)
	case a.err != nil:
		h.again(w, a.err)
	case h.caughtUp(w):
		h.order.Reached(nil)
	}
}

func (h *sessionHost) finish(err error) {
	h.reads.wait = nil
	h.order.Reached(err)
}

var errNotCaughtUp = errors.New("this server has not caught up")

// caughtUp says that the wait is over: this server shows the revision.
func (h *sessionHost) caughtUp(w *arrivalWait) bool {
	if w.revision == 0 || w.known.c.visible(w.parts) >= w.revision {
		h.reads.wait = nil
		h.reads.known = w.known
		return true
	}
	h.l.sv.c.stats.Lagging++
	h.awaitLag(w, h.l.sv.c.loop.now+requestTicks*tickInterval)
	return false
}

// awaitLag looks now and then whether the server shows what a wait is for.
func (h *sessionHost) awaitLag(w *arrivalWait, deadline time.Duration) {
	h.l.after(h.l.between(0, time.Millisecond), "session lags", uint64(h.id), func() {
		switch {
		case h.ended || h.reads.wait != w:
		case w.known.c.visible(w.parts) >= w.revision:
			h.arrived(w, nil)
		case h.l.sv.c.loop.now > deadline:
			h.arrived(w, errNotCaughtUp)
		default:
			h.awaitLag(w, deadline)
		}
	})
}

// visible is the revision that all of the partitions show here.
func (c *core) visible(parts placement.Set) int64 {
	rev := int64(math.MaxInt64)
	for p := range parts.Each() {
		rev = min(rev, c.replica.Visible(p))
	}
	return rev
}

// Begin implements session.Host.
func (h *sessionHost) Begin(parts placement.Set) {
	h.reads.at = h.reads.known.c.replica.Readable(parts)
}

// Read implements session.Host.
func (h *sessionHost) Read(op *session.Op) bool {
	if h.l.known() != h.reads.known {
		return false
	}
	r := op.Request.(*session.Request)
	if r.Kind == stoapb.Kind_SYNC || r.Kind == stoapb.Kind_PROGRESS {
		if op.Revision = h.reads.at; op.Revision == 0 {
			op.Revision = h.l.core.visible(h.l.core.machine.Placement().All())
		}
		op.Reflects = r.Kind == stoapb.Kind_PROGRESS
		return true
	}
	return h.read(op, r, 0)
}

// read evaluates a read at the revision of the run; parts are where it lies, 0 for
// by the map of the run.
func (h *sessionHost) read(op *session.Op, r *session.Request, parts placement.Set) bool {
	m, err := h.reads.known.c.machine, error(nil)
	op.Reflects = true
	if r.Message == nil {
		r.Kv, op.Revision, err = m.Get(r.Key, m.Placement().Partition(r.Key), h.reads.at)
	} else {
		if parts == 0 {
			parts = m.Parts(r.Message)
		}
		var resp proto.Message
		switch q := r.Message.(type) {
		case *pb.RangeRequest:
			resp, err = m.Range(q, parts, h.reads.at)
		case *pb.TxnRequest:
			resp, err = m.ReadTxn(q, parts, h.reads.at)
		}
		if err == nil {
			r.Response, op.Revision = resp, resp.(answered).GetHeader().GetRevision()
		}
	}
	if errors.Is(err, fault.Moved) {
		h.l.sv.c.stats.Rerouted++
		return false
	}
	if err == nil && h.overtaken(h.reads.known.c, op) {
		err = fault.ReadOvertaken
	}
	op.Err = err
	return true
}
