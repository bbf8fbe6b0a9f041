package host

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
)

// reads is the run of reads that waits, or is being carried out.
type reads struct {
	planned known        // by what the next run is planned; none: nothing of it has been
	local   bool         // a read that asks no leader may be in the next run
	wait    *arrivalWait // nil: none
	known   known        // by what the run was planned; none: it has to be planned anew
	at      int64
}

// arrivalWait is one wait of a run: for a read point, then for a revision.
type arrivalWait struct {
	parts    placement.Set
	revision int64
	known    known     // by what the run was planned
	local    bool      // also for what this server owes ([State.Owes])
	deadline time.Time // of all its steps together; zero until one has to wait
	lag      *lag      // the last one
}

// left is how much of its time a wait has.
func (d *driver) left(w *arrivalWait) time.Duration {
	now := d.server.Now()
	if w.deadline.IsZero() {
		w.deadline = now.Add(d.cfg.RequestTimeout)
	}
	return w.deadline.Sub(now)
}

// arrival is the end of one step of a wait.
type arrival struct {
	wait *arrivalWait
	err  error
}

// sentBefore tells whether a request was sent before, over another stream.
func (d *driver) sentBefore(op *session.Op) bool { return op.Seq <= d.before }

// recall answers a read or a watch that is sent again with what it was answered with the first time, if an extension
// handled it then. By now none may: it has been removed, or is another's. What the call did, it did.
func (d *driver) recall(s *State, op *session.Op, r *session.Request) (known bool) {
	if !d.sentBefore(op) {
		return false
	}
	before, known := s.Machine.SessionResult(d.s.id, op.Seq)
	if _, written := before.Response.(*pb.PutResponse); !known || written { // by a client that has given a number twice
		return false
	}
	r.Kv, r.Found, r.Response = kvwire.KeyValue{}, nil, before.Response
	op.Revision, op.Err, op.Unseen, op.Logged = before.Rev, before.Err, false, true
	return true
}

// overtaken says why a request has lost its place, if it has: writes that its
// session sent behind it, the first time, have taken effect in what it is carried out on. A
// write is remembered in each partition that it changes, in one step with the
// change; so a check after the read misses none that the read can have shown.
// That also holds for a write which is still on its way from the stream before:
// it is in the answer and is remembered, or neither. With the lease all of them
// are forgotten.
func (d *driver) overtaken(s *State, op *session.Op) error {
	if !d.sentBefore(op) {
		return nil
	}
	for p := range s.Stores {
		if s.Machine.SessionLast(p, d.s.id) > op.Seq {
			return fault.ReadOvertaken
		}
	}
	if !s.Machine.Leases.Has(d.s.id) {
		return fault.SessionGone
	}
	return nil
}

// readNow answers a fast read; false: it isn't one, or it has to wait until this server
// is back where it was ([watch.Hub.Floor], [State.Owes]).
func (d *driver) readNow(op *session.Op, r *session.Request) bool {
	if r.Kind != stoapb.Kind_RANGE && r.Kind != stoapb.Kind_TXN {
		return false
	}
	for range 100 {
		now := d.known()
		plan := d.way(op)
		if plan.Class != session.Read {
			return false
		}
		if d.known() != now {
			continue // perhaps it was planned by another
		}
		st, floor := now.state, d.server.Hub().Floor()
		if st.owes(plan.Parts) {
			return false
		}
		if !d.read(op, r, st, plan.Parts, st.Replica.Readable(plan.Parts)) {
			continue
		}
		future := errors.Is(op.Err, fault.FutureRevision) && st.shows(plan.Parts) < floor
		if op.Err == nil && op.Revision < floor || future {
			op.Token, op.Err = max(op.Token, floor), nil
			r.Kv, r.Found, r.Response = kvwire.KeyValue{}, nil, nil
			return false
		}
		op.Unseen, op.Reflects = true, false
		return true
	}
	return false
}

// Await implements session.Host.
func (d *driver) Await(strict bool, parts placement.Set, revision int64) bool {
	w := &arrivalWait{parts: parts, revision: revision, known: d.reads.planned, local: d.reads.local}
	d.reads.planned, d.reads.local = known{}, false
	if d.known() != w.known { // perhaps some of the run was planned by another
		d.anew()
		return true
	}
	d.reads.wait = w
	if strict {
		d.ask(w)
		// On a server that is alone the answer is here.
		switch err, ok := d.s.answered(w); {
		case !ok:
			d.left(w) // its time runs from here
			return false
		case err != nil:
			d.s.arrive(w, err) // the order takes it when it waits
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

// ask asks for a read point. It runs on any goroutine.
func (d *driver) ask(w *arrivalWait) {
	if d.known() != w.known {
		d.s.arrive(w, errReplaced)
		return
	}
	w.known.state.Replica.ReadPoint(w.parts, func(err error) { d.s.arrive(w, err) })
}

func (s *Session) arrive(w *arrivalWait, err error) {
	s.put(func(in *inbox) { in.arrived = append(in.arrived, arrival{w, err}) })
}

// again asks again after an error about leadership, as long as a read may take. So it does if the leader has
// fewer partitions already: this server is about to have them, too.
func (d *driver) again(w *arrivalWait, err error) {
	switch {
	case errors.Is(err, fault.Stopped): // no answer: another server has one
		d.reads.wait, d.lost = nil, err
		d.order.Lost()
	case !fault.Passing(err) && !errors.Is(err, fault.Moved):
		d.finish(err)
	case d.left(w) <= 0:
		d.finish(fault.Timeout)
	default:
		d.server.After(pauseBetween, func() { d.ask(w) })
	}
}

// arrive goes on with a wait.
func (d *driver) arrive(a arrival) {
	w := a.wait
	switch {
	case w != d.reads.wait:
	case errors.Is(a.err, errReplaced) && d.left(w) > 0:
		d.anew() // the new one need not have got where the old one was
		d.order.Reached(nil)
	case errors.Is(a.err, errReplaced), errors.Is(a.err, errNotCaughtUp):
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

// anew ends the wait of a run that has to be planned anew.
func (d *driver) anew() {
	d.reads.wait = nil
	d.reads.known = known{}
}

// caughtUp says that the wait is over: this server shows the revision, and what it owes.
func (d *driver) caughtUp(w *arrivalWait) bool {
	st := w.known.state
	switch {
	case w.revision > 0 && st.shows(w.parts) < w.revision:
		d.cfg.Counts.Lagging.Add(1)
		w.lag = &lag{state: st, parts: w.parts, revision: w.revision, done: func(err error) { d.s.arrive(w, err) }}
		d.s.of.lags.wait(d.server, d.left(w), w.lag)
		return false
	case w.local && st.owes(w.parts):
		if d.left(w) <= 0 {
			d.s.arrive(w, errNotCaughtUp)
		} else {
			d.server.After(pauseBetween, func() { d.look(w) })
		}
		return false
	}
	d.reads.wait = nil
	d.reads.known = w.known
	return true
}

// look has a wait go on, unless another state has taken the place of its own. It runs on any goroutine.
func (d *driver) look(w *arrivalWait) {
	var err error
	if d.known() != w.known {
		err = errReplaced
	}
	d.s.arrive(w, err)
}

// Begin implements session.Host.
func (d *driver) Begin(parts placement.Set) {
	if st := d.reads.known.state; st != nil {
		d.reads.at = st.Replica.Readable(parts)
	}
}

// Read implements session.Host.
func (d *driver) Read(op *session.Op) bool {
	now := d.known()
	if now != d.reads.known {
		return false // its keys may have moved, or an extension registered meanwhile may be for it
	}
	r := op.Request.(*session.Request)
	switch r.Kind {
	case stoapb.Kind_SYNC, stoapb.Kind_PROGRESS:
		if op.Revision = d.reads.at; op.Revision == 0 {
			op.Revision = now.state.shows(now.placed.All())
		}
		op.Reflects = true
		return true
	case stoapb.Kind_WATCH:
		return true // it is opened when its reply leaves
	}
	return d.read(op, r, now.state, 0, d.reads.at)
}

// read evaluates a read in a state, at a revision; parts are where it lies, 0 for by the
// present map.
func (d *driver) read(op *session.Op, r *session.Request, st *State, parts placement.Set, at int64) bool {
	m, err := st.Machine, error(nil)
	op.Reflects = true
	d.cfg.Counts.Reads.Add(1)
	if r.Message == nil {
		r.Kv, op.Revision, err = m.Get(r.Key, m.Placement().Partition(r.Key), at, d.s.user)
	} else {
		if parts == 0 {
			parts = m.Parts(r.Message)
		}
		switch q := r.Message.(type) {
		case *pb.RangeRequest:
			if r.Found, err = m.Range(q, parts, at, d.s.user); err == nil {
				op.Revision = r.Found.Header.GetRevision()
			}
		case *pb.TxnRequest:
			var resp *pb.TxnResponse
			if resp, err = m.ReadTxn(q, parts, at, d.s.user); err == nil {
				r.Response, op.Revision = resp, resp.Header.GetRevision()
			}
		}
	}
	switch {
	case errors.Is(err, fault.Moved):
		d.cfg.Counts.Rerouted.Add(1)
		return false
	case elsewhere(err):
		d.abandon(err)
		return true
	case err != nil && d.server.State() != st:
		return false // it had to read from a file that has been closed
	case d.recall(st, op, r):
		return true
	case err == nil:
		err = d.overtaken(st, op)
	}
	op.Err = err
	return true
}

// stopReads ends the wait: the session has ended.
func (d *driver) stopReads() {
	if w := d.reads.wait; w != nil && w.lag != nil {
		d.s.of.lags.drop(w.lag)
	}
	d.reads.wait = nil
}
