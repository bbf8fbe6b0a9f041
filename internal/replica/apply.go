package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/apply"
)

// apply executes committed entries until there are none or the next one is a
// rendezvous that other participants have not reached.
func (g *group) apply() (moved bool) {
	for !g.blocked && !g.r.resized.halted.Load() {
		it := g.front()
		if it == nil {
			break
		}
		g.since.Store(g.r.now() + 1)
		if !g.applyOne(it) {
			g.blocked = true
			break
		}
		g.pop()
		moved = true
	}
	if moved {
		if len(g.r.groups) == 1 || !g.r.seq.IsOpen() {
			g.closeShown() // the store may be another group's by now, at the rendezvous where this one waits
			g.raiseClosed()
		}
		g.wait.check(g)
	}
	g.since.Store(0)
	return moved
}

// closeShown closes the store's revision, on a server that doesn't stamp, or of the only group: stamps increase
// along the log.
func (g *group) closeShown() {
	g.store.RLock()
	rev := g.store.Rev()
	g.store.RUnlock()
	g.r.closed[g.id].raise(rev)
}

// front is the entry to be applied next, or nil.
func (g *group) front() *item {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.committed) == 0 {
		return nil
	}
	return &g.committed[0]
}

func (g *group) pop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.committed[0].step != nil {
		g.stepping--
	}
	g.committed[0] = item{}
	if g.committed = g.committed[1:]; len(g.committed) == 0 {
		g.committed = nil
	}
}

// claim returns the writes that wait for an entry; afterwards only the caller
// answers them.
func (g *group) claim(it *item) (writes []*Write, mine bool) {
	if it.entry.Origin != g.r.cfg.Origin {
		return nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if writes, mine = g.waiting[it.entry.Seq]; mine {
		delete(g.waiting, it.entry.Seq)
		g.open--
	}
	return writes, mine
}

// acknowledge reports applied entries to Raft, also of a batch whose remaining
// entries wait at a rendezvous: the log may be shortened up to what the stores
// have applied, and Raft considers everything above as not applied, but for steps that it has
// been given ahead of the stores, and what is in front of them.
func (g *group) acknowledge() {
	applied := max(g.applied.Load(), g.ahead)
	for len(g.acks) > 0 {
		ack := g.acks[0]
		entries := ack.GetEntries()
		switch first := entries[0].GetIndex(); {
		case first > applied:
			return
		case applied-first+1 >= uint64(len(entries)):
			g.acks = g.acks[1:]
			_ = g.node.Step(ack)
		default:
			n := applied - first + 1
			ack.Entries = entries[n:]
			_ = g.node.Step(&raftpb.Message{Type: ack.Type, To: ack.To, From: ack.From, Term: ack.Term, Entries: entries[:n]})
			return
		}
	}
}

// applyOne returns false if the entry must wait.
func (g *group) applyOne(it *item) bool {
	e := &it.entry
	switch {
	case it.step != nil:
		g.applyStep(it)
		return true
	case len(e.Commands) == 0: // Raft's own, or a barrier
		if epoch, ok := e.Opens(); ok {
			g.r.cfg.Machine.Open(g.id, it.index, it.term, epoch)
		} else {
			g.r.cfg.Machine.Skip(g.id, it.index, it.term)
		}
	case e.Parts == 0:
		g.applyLocal(it)
		return true
	case g.r.meet.passed(it): // executed by another participant
		g.passed(it)
		return true
	default:
		answer, met := g.r.arrive(g, it)
		if met {
			g.passed(it)
			answer()
		}
		return met
	}
	g.finished(it)
	return true
}

// passed has a rendezvous behind it that has been executed.
func (g *group) passed(it *item) {
	g.finished(it)
	g.r.meet.leave(g.id, it)
	g.claim(it)
}

// finished publishes that an entry has been applied here: its index first, so
// that the index is visible before a closed stamp (closedHere). Its writes are answered afterwards:
// no header of a later answer is below theirs.
func (g *group) finished(it *item) {
	g.applied.Store(it.index)
	if len(g.r.groups) == 1 {
		g.closeShown()
	}
	if n := it.entry.Stamps(); n > 0 && it.entry.Stamp > 0 {
		stamp := it.entry.Stamp + int64(n) - 1
		// On a server that isn't the leader this only keeps C above what its
		// store shows.
		g.r.seq.Commit(stamp)
		g.r.seq.Applied(g.id, stamp)
		g.r.closed[g.id].raise(stamp) // it is shown, and much may still have to be applied in this turn
	}
	if it.entry.Origin == g.r.cfg.Origin && it.entry.Seq != 0 && g.barrier.CompareAndSwap(it.entry.Seq, 0) {
		g.store.RLock()
		rev := g.store.Rev()
		g.store.RUnlock()
		g.r.lead.barrierApplied(g, it.entry.Seq, rev).run()
	}
}

// applyLocal executes an entry of this partition alone. Waiters are answered
// after everything is published and no lock is held.
func (g *group) applyLocal(it *item) {
	writes, mine := g.claim(it)
	if !mine {
		g.r.cfg.Machine.Local(g.id, it.index, it.term, &it.entry, nil)
		g.finished(it)
		return
	}
	results := make([]apply.Result, len(writes))
	g.r.cfg.Machine.Local(g.id, it.index, it.term, &it.entry, func(i int, res apply.Result) { results[i] = res })
	g.finished(it)
	answered := int64(0)
	for i, w := range writes {
		if w != nil {
			w.Trace.reached(Applied, g.id)
			w.Done(Outcome{Result: results[i], Group: g.id, Index: it.index})
			answered++
		}
	}
	g.pending.Add(-answered)
}
