package node

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
)

// reads is the run of reads that waits, or is being carried out.
type reads struct {
	wait  *arrivalWait // nil: nobody waits
	known known
	at    int64
}

// arrivalWait is one wait of a run: for a read point, then for a revision.
type arrivalWait struct {
	strict   bool
	parts    placement.Set
	revision int64
	deadline time.Time
	known    known
}

// arrival is the end of one step of a wait.
type arrival struct {
	wait *arrivalWait
	err  error
}

func (d *driver) planRange(op *session.Op, r *session.Request) session.Plan {
	m := d.s.n.current().machine
	if r.Message == nil {
		if !m.Extensions().Concerns(r.Key) {
			return session.Plan{
				Class: session.Read, Parts: placement.Of(m.Placement().Partition(r.Key)),
				Strict: r.Level == stoapb.Level_STRICT,
			}
		}
		if err := decodeRequest(r, new(pb.RangeRequest)); err != nil {
			return refuse(op, err)
		}
	}
	return d.planRead(command.Range, r)
}

// planRead plans what changes nothing, unless an extension handles it.
func (d *driver) planRead(kind command.Kind, r *session.Request) session.Plan {
	m := d.s.n.current().machine
	if p, handled := m.PlanRead(kind, r.Message, d.who); handled {
		d.plan = p
		return session.Plan{Class: session.Write, Parts: p.Parts}
	}
	return session.Plan{Class: session.Read, Parts: m.Parts(r.Message), Strict: r.Level == stoapb.Level_STRICT}
}

// sentBefore tells whether a request was sent before, over another stream, and others behind
// it: writes that may have taken effect.
func (d *driver) sentBefore(op *session.Op) bool { return op.Seq < d.before }

// overtaken tells whether writes that its session sent behind a request have taken
// effect in what it is carried out on. A write is remembered in each partition that it
// changes, in one step with the change; so whoever asks after reading misses none that
// the read can have shown. That also holds for a write which is still on its way from
// the stream before: it is in the answer and is remembered, or neither.
func (d *driver) overtaken(c *core, op *session.Op) bool {
	if !d.sentBefore(op) {
		return false
	}
	for p := range c.stores {
		if c.machine.SessionLast(p, d.s.id) > op.Seq {
			return true
		}
	}
	return false
}

// readNow answers a fast read; false: it isn't one.
func (d *driver) readNow(op *session.Op, r *session.Request) bool {
	if r.Kind != stoapb.Kind_RANGE && r.Kind != stoapb.Kind_TXN {
		return false
	}
	for range 100 {
		plan := d.Plan(op)
		if plan.Class != session.Read {
			return false
		}
		c := d.s.n.current()
		d.reads.known, d.reads.at = known{c: c}, c.replica.Readable(plan.Parts)
		if d.read(op, r, plan.Parts) {
			op.Unseen, op.Reflects = true, false
			return true
		}
	}
	return false
}

// Await implements session.Host.
func (d *driver) Await(strict bool, parts placement.Set, revision int64) bool {
	w := &arrivalWait{strict: strict, parts: parts, revision: revision, known: d.s.n.known()}
	d.reads.wait = w
	if strict {
		w.ask(d.s)
		// On a server that is alone the answer is here.
		if err, ok := d.s.answered(w); !ok {
			return false
		} else if err != nil {
			d.again(w, err)
			return false
		}
	}
	return d.caughtUp(w)
}

// answered takes the answer to a wait out of the inbox.
func (s *Session) answered(w *arrivalWait) (error, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.in.arrived {
		if a.wait == w {
			s.in.arrived = append(s.in.arrived[:i], s.in.arrived[i+1:]...)
			return a.err, true
		}
	}
	return nil, false
}

// ask asks for a read point.
func (w *arrivalWait) ask(s *Session) {
	w.known = s.n.known()
	w.known.c.replica.ReadPoint(w.parts, func(err error) { s.arrive(w, err) })
}

func (s *Session) arrive(w *arrivalWait, err error) {
	s.put(func(in *inbox) { in.arrived = append(in.arrived, arrival{w, err}) })
}

// again asks again after an error about leadership, as long as a read may take.
func (d *driver) again(w *arrivalWait, err error) {
	switch {
	case !passing(err):
		d.finish(err)
		return
	case w.deadline.IsZero():
		w.deadline = time.Now().Add(d.s.n.cfg.requestTimeout())
	case time.Now().After(w.deadline):
		d.finish(fault.Timeout)
		return
	}
	time.AfterFunc(pauseBetween, func() { w.ask(d.s) })
}

// arrive goes on with a wait.
func (d *driver) arrive(a arrival) {
	w := a.wait
	switch {
	case w != d.reads.wait:
	case a.err != nil && errors.Is(a.err, errNotCaughtUp):
		d.finish(fault.Timeout)
	case a.err != nil:
		d.again(w, a.err)
	case d.caughtUp(w):
		d.order.Reached(nil)
	}
}

func (d *driver) finish(err error) {
	d.reads.wait = nil
	d.order.Reached(err)
}

// caughtUp says that the wait is over: this server shows the revision.
func (d *driver) caughtUp(w *arrivalWait) bool {
	n := d.s.n
	if w.revision == 0 || n.shows(w.known.c, w.parts, w.revision) {
		d.reads.wait = nil
		d.reads.known = w.known
		return true
	}
	n.lags.wait(n, w.known.c, w.parts, w.revision, func(err error) { d.s.arrive(w, err) })
	return false
}

// Begin implements session.Host.
func (d *driver) Begin(parts placement.Set) {
	d.reads.at = d.reads.known.c.replica.Readable(parts)
}

// Read implements session.Host.
func (d *driver) Read(op *session.Op) bool {
	now := d.s.n.known()
	if now != d.reads.known {
		return false // an extension registered meanwhile may be for it
	}
	r := op.Request.(*session.Request)
	switch r.Kind {
	case stoapb.Kind_SYNC, stoapb.Kind_PROGRESS:
		if op.Revision = d.reads.at; op.Revision == 0 {
			op.Revision = now.c.visible(now.placed.All())
		}
		op.Reflects = r.Kind == stoapb.Kind_PROGRESS
		return true
	}
	return d.read(op, r, 0)
}

// read evaluates a read at the revision of the run; parts are where it lies, 0 for
// by the map of the run.
func (d *driver) read(op *session.Op, r *session.Request, parts placement.Set) bool {
	m, err := d.reads.known.c.machine, error(nil)
	op.Reflects = true
	d.s.n.counts.ranges.Add(1)
	if r.Message == nil {
		r.Kv, op.Revision, err = m.Get(r.Key, m.Placement().Partition(r.Key), d.reads.at)
	} else {
		if parts == 0 {
			parts = m.Parts(r.Message)
		}
		switch q := r.Message.(type) {
		case *pb.RangeRequest:
			var resp *pb.RangeResponse
			if resp, err = m.Range(q, parts, d.reads.at); err == nil {
				r.Response, op.Revision = resp, resp.Header.GetRevision()
			}
		case *pb.TxnRequest:
			var resp *pb.TxnResponse
			if resp, err = m.ReadTxn(q, parts, d.reads.at); err == nil {
				r.Response, op.Revision = resp, resp.Header.GetRevision()
			}
		}
	}
	switch {
	case errors.Is(err, fault.Moved):
		return false
	case err == nil && d.overtaken(d.reads.known.c, op):
		err = fault.ReadOvertaken
	}
	op.Err = err
	return true
}

func (r *reads) stop() { r.wait = nil }

// visible is the revision that all of the partitions show here.
func (c *core) visible(parts placement.Set) int64 {
	rev := int64(everything)
	for p := range parts.Each() {
		c.stores[p].RLock()
		rev = min(rev, c.replica.Visible(p))
		c.stores[p].RUnlock()
	}
	return rev
}

func (n *Node) shows(c *core, parts placement.Set, revision int64) bool {
	return c.visible(parts) >= revision
}

// lags are causal reads that wait for this server to catch up with what their
// client has seen elsewhere.
type lags struct {
	count atomic.Int32
	mu    sync.Mutex
	list  []*lag
}

type lag struct {
	c        *core
	parts    placement.Set
	revision int64
	timer    *time.Timer
	done     func(error)
}

var errNotCaughtUp = errors.New("this server has not caught up")

func (ls *lags) wait(n *Node, c *core, parts placement.Set, revision int64, done func(error)) {
	l := &lag{c: c, parts: parts, revision: revision, done: done}
	ls.mu.Lock()
	ls.list = append(ls.list, l)
	ls.count.Add(1)
	l.timer = time.AfterFunc(n.cfg.requestTimeout(), func() { ls.give(errNotCaughtUp, func(o *lag) bool { return o == l }) })
	ls.mu.Unlock()
	ls.check(n) // it may have caught up before it was on the list
}

// check lets go of those whose time has come. It is called whenever a partition
// shows more.
func (ls *lags) check(n *Node) {
	if ls.count.Load() > 0 {
		ls.give(nil, func(l *lag) bool { return n.shows(l.c, l.parts, l.revision) })
	}
}

func (ls *lags) give(err error, which func(*lag) bool) {
	var ready []*lag
	ls.mu.Lock()
	kept := ls.list[:0]
	for _, l := range ls.list {
		if which(l) {
			ready = append(ready, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(ls.list[len(kept):])
	ls.list = kept
	ls.count.Store(int32(len(kept)))
	ls.mu.Unlock()
	for _, l := range ready {
		l.timer.Stop()
		l.done(err)
	}
}
