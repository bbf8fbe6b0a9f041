package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/apply"
)

// apply runs committed entries until there are none or the next one is a
// rendezvous that others have not reached.
func (g *group) apply() (moved bool) {
	n := 0
	for n < len(g.committed) && !g.blocked {
		if !g.applyOne(&g.committed[n]) {
			g.blocked = true
			break
		}
		g.committed[n] = item{}
		n++
	}
	if n == 0 {
		return false
	}
	g.committed = g.committed[n:]
	if len(g.committed) == 0 {
		g.committed = nil
	}
	g.acknowledge(g.applied.Load())
	if len(g.r.groups) == 1 || !g.r.seq.IsOpen() {
		g.settleClosed()
	}
	g.wait.check(g)
	return true
}

// acknowledge tells Raft what has been applied, also of a batch whose rest waits
// at a rendezvous: the log may be shortened up to what the stores have applied,
// and Raft still looks at everything above what it was told.
func (g *group) acknowledge(applied uint64) {
	for len(g.acks) > 0 {
		whole := g.acks[0]
		entries := whole.GetEntries()
		switch first := entries[0].GetIndex(); {
		case first > applied:
			return
		case applied-first+1 >= uint64(len(entries)):
			g.acks = g.acks[1:]
			_ = g.node.Step(whole)
		default:
			n := applied - first + 1
			whole.Entries = entries[n:]
			_ = g.node.Step(&raftpb.Message{Type: whole.Type, To: whole.To, From: whole.From, Term: whole.Term, Entries: entries[:n]})
			return
		}
	}
}

// applyOne returns false if the entry must wait.
func (g *group) applyOne(it *item) bool {
	e := &it.entry
	switch {
	case len(e.Commands) == 0: // Raft's own, or a barrier
		g.r.cfg.Machine.Skip(g.id, it.index, it.term)
	case e.Parts == 0:
		g.applyLocal(it)
		return true
	case !g.r.meet.passed(it) && !g.r.arrive(g, it):
		return false
	default: // executed by this group or by another participant
		g.finished(it)
		g.r.meet.leave(g.id, it)
		if _, mine := g.waiting[it.entry.Seq]; mine && it.entry.Origin == g.r.cfg.Origin {
			delete(g.waiting, it.entry.Seq)
			g.open--
		}
		return true
	}
	g.finished(it)
	return true
}

// finished publishes that an entry has been applied here.
func (g *group) finished(it *item) {
	if n := it.entry.Stamps(); n > 0 && it.entry.Stamp > 0 {
		stamp := it.entry.Stamp + int64(n) - 1
		// On a server that isn't the leader this only keeps C above what its
		// store shows.
		g.r.seq.Commit(stamp)
		g.r.seq.Applied(g.id, stamp)
	}
	g.applied.Store(it.index)
	if it.entry.Seq == 0 || it.entry.Origin != g.r.cfg.Origin {
		return
	}
	if it.entry.Seq == g.barrier {
		g.barrier = 0
		g.r.lead.barrierApplied(g)
	}
}

// applyLocal executes an entry of this partition alone. Those who wait are told
// after everything is published and no lock is held.
func (g *group) applyLocal(it *item) {
	writes, mine := g.waiting[it.entry.Seq]
	if !mine || it.entry.Origin != g.r.cfg.Origin {
		g.r.cfg.Machine.Local(g.id, it.index, it.term, &it.entry, nil)
		g.finished(it)
		return
	}
	delete(g.waiting, it.entry.Seq)
	results := make([]apply.Result, len(writes))
	g.r.cfg.Machine.Local(g.id, it.index, it.term, &it.entry, func(i int, res apply.Result) { results[i] = res })
	g.finished(it)
	g.open--
	answered := int64(0)
	for i, w := range writes {
		if w != nil {
			w.Done(Outcome{Result: results[i], Group: g.id, Index: it.index})
			answered++
		}
	}
	g.pending.Add(-answered)
}
