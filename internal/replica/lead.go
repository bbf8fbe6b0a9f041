package replica

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// leadership brings the leaders of all groups together (AGORA §IV-B: one
// server leads all partitions) and opens an epoch of the sequencer when it is
// safe:
//
//	this server leads every group
//	  → a barrier entry is proposed in every group
//	  → barriers committed: what is before them in the logs is final;
//	    each group lists the rendezvous before its barrier that are unfinished
//	  → rendezvous that some participants' logs lack are proposed to those,
//	    with their old stamps, in their old order
//	  → barriers applied: everything of earlier leaders is applied, the
//	    rendezvous included, since a barrier waits behind them
//	  → the sequencer opens above the highest stamp that was applied
//
// Any change of any group's term or leader ends the attempt or the epoch.
type leadership struct {
	r  *Replica
	mu sync.Mutex
	// epoch counts attempts; it is that of the open sequencer while open.
	epoch   uint64
	phase   phase
	groups  []role
	barrier uint64 // the Seq of the last attempt's barriers
	stopped bool
	// unled is the last tick at which group 0 had a leader that this server heard of.
	unled int64
	// resigned is the tick at which this server last handed its groups over, since it is
	// not a member any more, or 0.
	resigned int64
	effects  effects // collected under mu

	// published is the open epoch.
	published atomic.Pointer[epoch]

	tellMu sync.Mutex // held while Config.Role runs, so that its calls are in order
	told   uint64     // the epoch last passed to Config.Role, or 0
}

// epoch is a time in which this server stamps, and the terms in which it leads the
// groups.
type epoch struct {
	number uint64
	terms  []uint64
}

type phase uint8

const (
	apart    phase = iota // some group has another leader, or none
	settling              // waiting for barriers to be committed
	applying              // waiting for barriers to be applied
	opened
)

// role is leadership's state of one group.
type role struct {
	term, leader uint64
	leading      bool
	committed    bool
	applied      bool
	rev          int64 // of the store, when the barrier was applied
	unfinished   []*item
	campaigned   int64 // tick of the last campaign asked for
	turned       int64 // tick at which the term began here
}

func (l *leadership) init(r *Replica, partitions int) {
	l.r = r
	l.groups = make([]role, partitions)
}

// do runs fn under mu and returns the effects: these answer clients, whose
// callbacks may call back at once, so they run without any lock.
func (l *leadership) do(change func()) effects {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	e := l.effects
	l.effects = nil
	return e
}

// tell calls Config.Role with whether this server stamps. It reads the present
// state, so that the last of several concurrent calls reports the final state.
func (l *leadership) tell() {
	if l.r.cfg.Role == nil {
		return
	}
	l.tellMu.Lock()
	defer l.tellMu.Unlock()
	now := uint64(0)
	if e := l.published.Load(); e != nil {
		now = e.number
	}
	if now == l.told {
		return
	}
	if l.told != 0 {
		l.r.cfg.Role(0)
	}
	if l.told = now; now != 0 {
		l.r.cfg.Role(now)
	}
}

// report is called after a group's Raft state changed, before the messages of
// that change are sent.
func (l *leadership) report(g *group) effects { return l.do(func() { l.reported(g) }) }

func (l *leadership) reported(g *group) {
	ro, term := &l.groups[g.id], g.term.Load()
	if ro.term == term && ro.leader == g.leader && ro.leading == g.leading {
		return
	}
	wasLeading := ro.leading && (ro.term != term || !g.leading)
	turned := ro.turned
	if ro.term != term {
		turned = l.r.now()
	}
	*ro = role{term: term, leader: g.leader, leading: g.leading, campaigned: ro.campaigned, turned: turned}
	l.end()
	if wasLeading {
		l.effects.add(g.abandon())
	}
	if !l.stopped && l.leadsAll() {
		l.begin()
	}
	l.gather()
	l.effects.add(l.r.calls.leaderChanged)
}

// leadsAll reports whether this server leads every group.
func (l *leadership) leadsAll() bool {
	for i := range l.groups {
		if !l.groups[i].leading {
			return false
		}
	}
	return true
}

// end closes the epoch or abandons the attempt. The requests that waited for
// the epoch are removed here, so that they aren't confused with those of the
// next one, and failed later.
func (l *leadership) end() {
	was, ended := l.phase, l.epoch
	l.epoch++
	l.phase = apart
	l.published.Store(nil)
	l.hold(false)
	if was != opened {
		return
	}
	l.r.seq.Close()
	writes := l.r.multi.takeAll()
	l.effects.add(func() { failAll(writes, fault.TimeoutLeaderFail) })
	unconfirmed := l.r.conf.end()
	l.effects.add(func() { failReads(unconfirmed, fault.LeaderChanged) })
	for _, g := range l.r.groups {
		reads := g.wait.end(ended)
		l.effects.add(func() { release(reads, fault.LeaderChanged) })
		g.wake() // writes that have not been proposed go to the next leader
	}
	l.r.cfg.Logger.Info("stopped stamping: this server does not lead every group any more")
	l.effects.add(l.tell)
}

// begin starts an attempt.
func (l *leadership) begin() {
	l.phase = settling
	for i := range l.groups {
		l.groups[i].committed, l.groups[i].applied, l.groups[i].unfinished = false, false, nil
	}
	epoch, barrier := l.epoch, command.Barrier(l.groups[0].term, l.r.cfg.Origin, l.r.nextSeq.Add(1))
	l.barrier = barrier.Seq
	for _, g := range l.r.groups {
		g.order(func(g *group) { g.proposeBarrier(epoch, &barrier) })
	}
}

// proposeBarrier drops queued entries of earlier epochs and proposes the
// barrier after everything that is in the log.
func (g *group) proposeBarrier(epoch uint64, barrier *command.Entry) {
	if !g.r.lead.current(epoch) {
		return
	}
	for _, q := range g.takeQueue() {
		g.failing(q.writes, fault.TimeoutLeaderFail)
	}
	// A transfer in progress would have it refused: one to the server itself
	// cancels it. But if it is there on purpose, the barrier would make this log the longer
	// one, and the other server's election fail: over and over where it takes more than a tick.
	if !g.handsOver() {
		g.node.TransferLeader(g.r.cfg.ID)
	}
	if g.node.Propose(barrier.AppendTo(nil)) != nil {
		g.effects.add(g.r.lead.lost(epoch)...)
		return
	}
	g.barrier.Store(barrier.Seq)
}

// current reports whether epoch is the current one.
func (l *leadership) current(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch == epoch && l.phase != apart
}

// lost reports that a proposal of an epoch didn't get into the log: the epoch
// has a gap and must end. A new attempt begins at the next tick.
func (l *leadership) lost(epoch uint64) effects {
	return l.do(func() {
		if l.epoch == epoch {
			l.end()
		}
	})
}

// barrierCommitted and barrierApplied take the Seq of the barrier: a loop that is held up before it tells of one
// tells of it in a later attempt, for which it says nothing.
func (l *leadership) barrierCommitted(g *group, barrier uint64, unfinished []*item) effects {
	return l.do(func() {
		if l.phase != settling || barrier != l.barrier {
			return
		}
		ro := &l.groups[g.id]
		ro.committed, ro.unfinished = true, unfinished
		for i := range l.groups {
			if !l.groups[i].committed {
				return
			}
		}
		l.phase = applying
		l.recover()
		l.maybeOpen()
	})
}

func (l *leadership) barrierApplied(g *group, barrier uint64, rev int64) effects {
	return l.do(func() {
		if barrier != l.barrier {
			return
		}
		l.groups[g.id].applied, l.groups[g.id].rev = true, rev
		l.maybeOpen()
	})
}

func (l *leadership) maybeOpen() {
	if l.phase != applying {
		return
	}
	for i := range l.groups {
		if !l.groups[i].applied {
			return
		}
	}
	l.open()
}

// open starts stamping above every stamp of any log.
func (l *leadership) open() {
	highest := int64(1)
	for i := range l.groups {
		highest = max(highest, l.groups[i].rev)
	}
	l.phase = opened
	e := &epoch{number: l.epoch}
	for i := range l.groups {
		e.terms = append(e.terms, l.groups[i].term)
	}
	l.r.seq.Open(e.number, highest)
	l.published.Store(e) // now that C is valid for reads
	l.r.cfg.Logger.Info("stamping: this server leads every group",
		zap.Uint64("term", e.terms[0]), zap.Int64("revision", highest))
	l.reconfigure()
	l.effects.add(l.tell)
	l.effects.add(l.r.calls.unpark)
	for _, g := range l.r.groups {
		g.wake()
	}
}

// recover proposes unfinished rendezvous to the participants whose logs lack
// them. A log is a prefix of what its leader queued, and later queued entries
// were dropped with the epoch, so nothing that came after a missing entry can
// be in the log before it.
func (l *leadership) recover() {
	have := map[proposal]placement.Set{}
	entries := map[proposal]command.Entry{}
	executed := map[proposal]bool{}
	for p := range l.groups {
		for _, it := range l.groups[p].unfinished {
			key := it.proposal()
			have[key] |= placement.Of(p)
			entries[key] = it.entry
			// A group may have listed an entry just before the last participant
			// arrived and executed it; then no log lacks it.
			executed[key] = executed[key] || l.r.meet.isExecuted(l.r.groups[p], it)
		}
		l.groups[p].unfinished = nil
	}
	var order []proposal
	for key, e := range entries {
		if have[key] != e.Parts && !executed[key] {
			order = append(order, key)
		}
	}
	slices.SortFunc(order, func(a, b proposal) int {
		// All of them come from one leader: an earlier one's were completed
		// before it stamped. Entries without a stamp share the number of the
		// next that has one and come before it by their Seq.
		return cmp.Or(
			cmp.Compare(entries[a].Stamp, entries[b].Stamp),
			cmp.Compare(a.seq, b.seq))
	})
	for _, key := range order {
		e := entries[key]
		if e.Parts&^l.r.all() != 0 {
			break // a later generation's, as are those behind it; the leader of that completes them
		}
		data := e.AppendTo(nil)
		for p := range (e.Parts &^ have[key]).Each() {
			l.r.cfg.Logger.Info("completing a half-proposed rendezvous",
				zap.Int64("stamp", e.Stamp), zap.Stringer("participants", e.Parts), zap.Int("group", p))
			epoch := l.epoch
			l.r.groups[p].order(func(g *group) {
				if !l.current(epoch) || g.node.Propose(data) != nil {
					g.effects.add(l.lost(epoch)...)
				}
			})
		}
	}
}

func (l *leadership) tick() effects {
	return l.do(func() {
		if !l.stopped && l.phase == apart && l.leadsAll() {
			l.begin()
		}
		l.gather()
		l.reconfigure()
	})
}

func (l *leadership) stop() effects {
	return l.do(func() {
		l.stopped = true
		l.end()
	})
}

// Leader is the server that leads group 0, as far as this one knows; 0 if none.
func (r *Replica) Leader() uint64 { return r.groups[0].leaderSeen.Load() }

// Leading reports whether this server stamps: it leads every group, with
// nothing of earlier leaders pending.
func (r *Replica) Leading() bool { return r.seq.IsOpen() }
