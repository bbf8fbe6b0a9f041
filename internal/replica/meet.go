package replica

import (
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A rendezvous is logged in every participating group. On each server the apply
// loops meet at it: a loop that arrives waits, the last one executes the entry
// over all stores, and all continue. Two rendezvous can't wait for each other:
// the sequencer put those that share a participant into all their logs in one
// order (ZooFence, theorem 2).

// proposal names an entry over all groups and incarnations.
type proposal struct{ origin, seq uint64 }

func (it *item) proposal() proposal { return proposal{it.entry.Origin, it.entry.Seq} }

// meeting holds the rendezvous at which some participants wait.
type meeting struct {
	mu      sync.Mutex
	waiting map[proposal]*arrivals
}

type arrivals struct {
	since    int64 // the tick of the first
	at       []apply.Arrival
	here     placement.Set // participants that have arrived
	executed bool
	left     placement.Set // participants that have not continued yet, once executed
}

// passed reports whether the entry was executed while the group waited at it.
func (m *meeting) passed(it *item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.waiting[it.proposal()]
	return a != nil && a.executed
}

// leave is called by every participant after it has published the entry as
// applied.
func (m *meeting) leave(p int, it *item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := it.proposal()
	if a := m.waiting[key]; a != nil {
		if a.left &^= placement.Of(p); a.left == 0 {
			delete(m.waiting, key)
		}
	}
}

// arrive records that group p has reached the entry, tells whether it is the first, and returns
// all participants' positions if p is the last.
func (m *meeting) arrive(p int, it *item, now int64) (all []apply.Arrival, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := it.proposal()
	a := m.waiting[key]
	if first = a == nil; first {
		a = &arrivals{since: now}
		m.waiting[key] = a
	}
	if !a.here.Has(p) {
		a.here |= placement.Of(p)
		a.at = append(a.at, apply.Arrival{Partition: p, Index: it.index, Term: it.term})
	}
	if a.here != it.entry.Parts {
		return nil, first
	}
	return a.at, first
}

// oldest is the tick since which participants wait for others, or now if none do.
func (m *meeting) oldest(now int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.waiting {
		if !a.executed {
			now = min(now, a.since)
		}
	}
	return now
}

// executed releases the participants.
func (m *meeting) executed(it *item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.waiting[it.proposal()]
	a.executed = true
	a.left = it.entry.Parts
}

// isExecuted reports whether a rendezvous that group g had listed as unfinished
// has been executed since. A participant publishes its applied index before it
// leaves, so one of the two shows it.
func (m *meeting) isExecuted(g *group, it *item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.waiting[it.proposal()]
	return a != nil && a.executed || g.applied.Load() >= it.index
}

// arrive brings a group to a rendezvous. It returns false if others are
// missing; the last to arrive executes the entry for all, and has to answer it.
func (r *Replica) arrive(g *group, it *item) (answer func(), met bool) {
	at, first := r.meet.arrive(g.id, it, r.now())
	if it.entry.Commands[0].Kind == command.Move && (first || at != nil) {
		r.multi.met(r.cfg.Origin, it, at != nil)
	}
	if at == nil {
		return nil, false
	}
	writes := r.multi.removeOwn(r.cfg.Origin, it)
	results := make([]apply.Result, len(writes))
	var reply apply.Reply
	if writes != nil {
		reply = func(i int, res apply.Result) { results[i] = res }
	}
	members, fenced := r.cfg.Machine.Membership(), r.cfg.Machine.Fence.Now()
	r.cfg.Machine.Rendezvous(at, &it.entry, reply)
	for _, a := range at {
		r.groups[a.Partition].met.Store(a.Index)
	}
	r.resized.executed(r, it) // before other groups go on
	r.judged(it, fenced)
	r.meet.executed(it)
	if r.cfg.Machine.Membership() != members {
		r.reconfigured()
		r.lead.follow().run()
	}
	for p := range it.entry.Parts.Each() {
		if p != g.id {
			r.groups[p].resume()
		}
	}
	return func() {
		for i, w := range writes {
			if w != nil {
				w.Trace.reached(Applied, g.id)
				w.Done(Outcome{Result: r.dated(w.Command.Kind, results[i]), Group: g.id, Index: it.index})
			}
		}
		r.report(it)
	}, true
}

// dated sets the header of the answer to a command without a stamp to the
// committed watermark: the command has no revision of its own.
func (r *Replica) dated(k command.Kind, res apply.Result) apply.Result {
	if len(r.groups) == 1 || k.MayWrite() || res.Err != nil {
		return res
	}
	res.Rev = r.seq.Committed()
	r.calls.show(res.Rev)
	if resp, ok := res.Response.(interface{ GetHeader() *pb.ResponseHeader }); ok && resp.GetHeader() != nil {
		resp.GetHeader().Revision = res.Rev
	}
	return res
}

// unfinished lists the rendezvous that this group's log has and has not
// executed.
func (g *group) unfinished() []*item {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*item
	for i := range g.committed {
		if it := &g.committed[i]; it.entry.Parts != 0 {
			copied := *it
			list = append(list, &copied)
		}
	}
	return list
}

// multiWaiters holds the writes of rendezvous that were proposed here.
type multiWaiters struct {
	mu    sync.Mutex
	m     map[uint64][]*Write // by the Seq of their entry
	count int                 // of writes
}

// full reports that no more may wait; those being added may still do.
func (m *multiWaiters) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count >= maxPendingWrites
}

func (m *multiWaiters) add(seq uint64, writes []*Write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.m[seq] = writes
	m.count += len(writes)
}

// met tells a step of a transit, if it was proposed here, that its participants come to it.
func (m *multiWaiters) met(origin uint64, it *item, all bool) {
	if it.entry.Origin != origin {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.m[it.entry.Seq] {
		if w != nil && w.Met != nil {
			w.Met(all)
		}
	}
}

// removeOwn returns the writes of an entry, if it was proposed here, in the
// places of their commands. Those that have already failed are nil.
func (m *multiWaiters) removeOwn(origin uint64, it *item) []*Write {
	if it.entry.Origin != origin {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := m.m[it.entry.Seq]
	delete(m.m, it.entry.Seq)
	for _, w := range writes {
		if w != nil {
			m.count--
		}
	}
	return writes
}

// takeAll is called when the epoch ends.
func (m *multiWaiters) takeAll() []*Write {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.take(always)
	clear(m.m)
	return all
}

// expire fails writes that have timed out.
func (m *multiWaiters) expire(now int64) {
	m.mu.Lock()
	late := m.take(func(w *Write) bool { return w.deadline <= now })
	m.mu.Unlock()
	failAll(late, fault.Timeout)
}

// take removes the writes that match, in the order of their entries: a
// simulation must repeat itself. With mu held.
func (m *multiWaiters) take(match func(*Write) bool) (taken []*Write) {
	for _, seq := range slices.Sorted(maps.Keys(m.m)) {
		taken = append(taken, takeIf(m.m[seq], match)...)
	}
	m.count -= len(taken)
	return taken
}
