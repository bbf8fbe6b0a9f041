package replica

import (
	"errors"
	"maps"
	"slices"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// queued is an encoded entry in a group's queue, in the order of stamps.
type queued struct {
	epoch  uint64
	data   []byte
	seq    uint64
	own    bool     // made of this group's waiting writes
	meets  bool     // a rendezvous
	writes []*Write // of an own one that is a local entry
	traces traces   // nil: none
}

// accept takes writes that pass through this group's log; they will be part of
// its next entries. They are accepted even if this server has stopped stamping
// meanwhile: each turn of the loop routes those that it can't propose again.
func (g *group) accept(writes ...*Write) {
	n := int64(len(writes))
	if g.pending.Add(n) > maxPendingWrites {
		g.pending.Add(-n)
		failAll(writes, fault.TooManyRequests)
		return
	}
	for _, w := range writes {
		g.r.limit(w)
	}
	stopped := false
	g.put(func(in *inbox) {
		if stopped = in.stopped; !stopped {
			in.writes = append(in.writes, writes...)
		}
	})
	if stopped {
		g.pending.Add(-n)
		g.r.resubmit(writes)
	}
}

// propose batches waiting writes into entries and proposes them to Raft.
func (g *group) propose() {
	g.proposeStep()
	switch {
	case !g.r.seq.IsOpen():
		g.giveBack()
	case g.leading && g.room():
		if writes := g.nextBatch(); len(writes) > 0 {
			g.stampBatch(writes)
		}
	}
	queue := g.takeQueue()
	for i := range queue {
		g.proposeQueued(&queue[i])
	}
}

// takeQueue empties the queue.
func (g *group) takeQueue() (queue []queued) {
	g.r.seq.Queue(g.id, func() { queue, g.queue = g.queue, nil })
	return queue
}

// room reports whether another entry may be in flight.
func (g *group) room() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open < maxOpenEntries
}

// giveBack routes the waiting writes again, since this server doesn't stamp any
// more.
func (g *group) giveBack() {
	g.in.mu.Lock()
	writes := g.in.writes
	g.in.writes = nil
	g.in.mu.Unlock()
	g.giveUp(writes)
}

// giveUp routes writes again that were not proposed here.
func (g *group) giveUp(writes []*Write) {
	if len(writes) == 0 {
		return
	}
	g.pending.Add(-int64(len(writes)))
	g.effects.add(func() { g.r.resubmit(writes) })
}

// nextBatch takes waiting writes, up to the bounds of an entry.
func (g *group) nextBatch() []*Write {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	n, size, parts := 0, 0, placement.Set(0)
	for n < len(g.in.writes) && n < maxEntryCommands && size < maxEntryBytes {
		w := g.in.writes[n]
		if parts |= w.Parts; n > 0 && (w.alone() || g.in.writes[0].alone() || parts.Len() > max(maxBatchParts, w.Parts.Len())) {
			break
		}
		size += len(w.Command.Body)
		n++
	}
	return g.in.first(n)
}

// stampBatch makes one entry of writes: a local one, or, if sessions have writes
// for other partitions among them, a rendezvous with those.
func (g *group) stampBatch(writes []*Write) {
	e := command.Entry{Origin: g.r.cfg.Origin, Commands: make([]command.Command, len(writes))}
	parts := placement.Of(g.id)
	for i, w := range writes {
		e.Commands[i] = w.Command
		parts |= w.Parts
	}
	err := g.r.stamp(parts, &e, writes, g.id)
	switch {
	case errors.Is(err, errFollowing):
		g.in.mu.Lock()
		g.in.writes = append(writes, g.in.writes...) // in their order; a wake-up comes
		g.in.mu.Unlock()
	case err != nil:
		// Not stamping any more: the writes had no effect, another server may
		// propose them.
		g.giveUp(writes)
	case parts.Len() > 1:
		g.pending.Add(-int64(len(writes)))
	}
}

// noGroup is the owner of an entry that is no group's batch.
const noGroup = -1

// stamp stamps a group's batch and queues it in each of its partitions: as a local entry, if
// it is for this one alone, else as a rendezvous.
func (r *Replica) stamp(parts placement.Set, e *command.Entry, writes []*Write, home int) error {
	if parts.Len() == 1 {
		return r.stampEntry(parts, e, writes, home)
	}
	e.Parts = parts
	return r.following.stamp(func() error { return r.stampEntry(parts, e, writes, home) })
}

// stampEntry is stamp of an entry that is a local one or not.
func (r *Replica) stampEntry(parts placement.Set, e *command.Entry, writes []*Write, home int) error {
	local := e.Parts == 0
	n := e.Stamps()
	if len(r.groups) == 1 {
		n = 0 // dense revisions follow from the log alone
	}
	followed := tracesOf(writes)
	err := r.seq.ReserveIn(epochOf(writes), parts, n, func(epoch uint64, stamp int64) {
		// Numbered under the lanes, so that numbers follow the order of the logs:
		// recover puts entries without a stamp of their own in order by them.
		e.Seq = r.nextSeq.Add(1)
		if len(r.groups) > 1 {
			e.Stamp = stamp
		}
		q := queued{epoch: epoch, data: e.AppendTo(make([]byte, 0, e.Size())), seq: e.Seq, meets: !local, traces: followed}
		q.traces.reached(Stamped, parts.First())
		if local {
			q.writes = writes
		} else {
			r.multi.add(e.Seq, writes)
		}
		if e.Resizes() {
			r.seq.Seal()
		}
		for p := range parts.Each() {
			q.own = p == home
			r.groups[p].queue = append(r.groups[p].queue, q)
		}
	})
	if err != nil {
		return err
	}
	for p := range parts.Each() {
		if p != home { // which is running
			r.groups[p].wake()
		}
	}
	return nil
}

// epochOf is the epoch of a write that is alone in its entry.
func epochOf(writes []*Write) uint64 {
	if len(writes) == 1 && writes[0] != nil {
		return writes[0].Epoch
	}
	return 0
}

// proposeQueued gives one stamped entry to Raft. An entry of an ended epoch
// must not get into the log: the next epoch's recovery has already read it.
func (g *group) proposeQueued(q *queued) {
	if !g.r.lead.current(q.epoch) || g.node.Propose(q.data) != nil {
		g.failing(q.writes, fault.TimeoutLeaderFail)
		g.effects.add(g.r.lead.lost(q.epoch)...)
		return
	}
	g.follow(q)
	if q.own { // before anything can be applied: this half delivers what is committed
		g.mu.Lock()
		g.waiting[q.seq] = q.writes
		g.open++
		g.mu.Unlock()
	}
}

// failing adds the effect that writes fail.
func (g *group) failing(writes []*Write, err error) {
	if len(writes) == 0 {
		return
	}
	g.pending.Add(-int64(len(writes)))
	g.effects.add(func() { failAll(writes, err) })
}

// abandon fails the waiters for entries proposed here: whether those take
// effect is decided by the next leader. It returns the effect.
func (g *group) abandon() func() {
	g.barrier.Store(0)
	g.mu.Lock()
	writes := g.takeWaiting(always)
	clear(g.waiting)
	g.open = 0
	g.mu.Unlock()
	g.pending.Add(-int64(len(writes)))
	return func() { failAll(writes, fault.TimeoutLeaderFail) }
}

// takeWaiting removes writes that wait for entries in the log, in their order:
// a simulation must repeat itself. With mu held.
func (g *group) takeWaiting(match func(*Write) bool) (taken []*Write) {
	for _, seq := range slices.Sorted(maps.Keys(g.waiting)) {
		taken = append(taken, takeIf(g.waiting[seq], match)...)
	}
	return taken
}

// expire fails writes that have timed out, in the log or before it.
func (g *group) expire(now int64) {
	late := func(w *Write) bool { return w.deadline <= now }
	g.mu.Lock()
	proposed := g.takeWaiting(late)
	g.mu.Unlock()
	g.in.mu.Lock()
	var before []*Write
	g.in.writes, before = extract(g.in.writes, late)
	g.in.mu.Unlock()
	g.failing(append(proposed, before...), fault.Timeout)
}

// stop fails the writes that wait here, except those that have not been
// proposed, which can't have taken effect. No Work runs any more.
func (g *group) stop(err error) {
	g.in.mu.Lock()
	g.in.stopped = true
	g.in.mu.Unlock()
	g.turn(func() {
		g.giveBack()
		for _, q := range g.takeQueue() {
			g.giveUp(q.writes)
		}
		g.mu.Lock()
		writes := g.takeWaiting(always)
		g.mu.Unlock()
		g.failing(writes, err)
	})
	g.wait.stop(err)
}

// submitMulti stamps a write of several partitions.
func (r *Replica) submitMulti(w *Write) {
	if r.multi.full() {
		w.fail(fault.TooManyRequests)
		return
	}
	r.limit(w)
	switch err := r.following.stamp(func() error { return r.stampAlone(w) }); {
	case errors.Is(err, errFollowing) && r.following.hold(w):
	case err != nil:
		r.resubmit([]*Write{w})
	}
}

// stampAlone stamps a rendezvous of one write.
func (r *Replica) stampAlone(w *Write) error {
	e := command.Entry{Parts: w.Parts, Commands: []command.Command{w.Command}, Origin: r.cfg.Origin}
	return r.stampEntry(w.Parts, &e, []*Write{w}, noGroup)
}
