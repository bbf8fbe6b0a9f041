package replica

import (
	"maps"
	"slices"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Write is a command on its way into the log.
type Write struct {
	Command command.Command
	// Parts are the partitions that it touches. More than one, or a command of
	// the system, makes a rendezvous.
	Parts placement.Set
	// System marks commands that change what all partitions share.
	System bool
	// Session marks a write whose order among others counts (command.InSession). It
	// is never proposed again by the replica itself: once the epoch in which it was
	// submitted has ended, it fails with LeaderChanged, whether or not it had got
	// into the log, and its session starts anew from there.
	Session bool
	// Home, of a session's write, is the participant in whose log it comes behind
	// the session's writes before it.
	Home int
	// Done is called once, from any goroutine, and must not block. An error of
	// the kinds LeaderChanged and Timeout… leaves open whether the write took
	// effect.
	Done func(Outcome)
}

// Outcome is the result of a write, and where in the logs it took effect.
type Outcome struct {
	apply.Result
	Group int
	Index uint64
}

// resubmit sends a write that has not got into the log to whoever stamps now.
func (r *Replica) resubmit(writes []*Write) {
	for _, w := range writes {
		if w.Session {
			w.fail(fault.LeaderChanged)
		} else {
			r.Submit(w)
		}
	}
}

func (w *Write) fail(err error) { w.Done(Outcome{Result: apply.Result{Err: err}}) }

// queued is an encoded entry in a group's queue, in the order of stamps.
type queued struct {
	epoch  uint64
	data   []byte
	seq    uint64
	batch  bool     // of this group's waiting writes
	writes []*Write // of a batch that is a local entry
}

// local takes a write of this partition; it will be part of the next entry.
func (g *group) local(w *Write) {
	if g.pending.Add(1) > MaxPendingWrites {
		g.pending.Add(-1)
		w.fail(fault.TooManyRequests)
		return
	}
	stopped := false
	g.put(func(in *inbox) {
		if stopped = in.stopped; !stopped {
			in.writes = append(in.writes, w)
		}
	})
	if stopped {
		g.r.resubmit([]*Write{w})
	}
}

// propose turns what waits into entries and gives them to Raft.
func (g *group) propose() {
	if g.leading && g.open < maxOpenEntries {
		if writes := g.nextBatch(); len(writes) > 0 {
			g.stampBatch(writes)
		}
	}
	var queue []queued
	g.r.seq.Queue(g.id, func() { queue, g.queue = g.queue, nil })
	for i := range queue {
		g.proposeQueued(&queue[i])
	}
}

// nextBatch takes waiting writes, up to the bounds of an entry.
func (g *group) nextBatch() []*Write {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	n, size, parts := 0, 0, placement.Set(0)
	for n < len(g.in.writes) && n < maxEntryCommands && size < maxEntryBytes {
		w := g.in.writes[n]
		if parts |= w.Parts; n > 0 && parts.Len() > max(maxBatchParts, w.Parts.Len()) {
			break
		}
		size += len(w.Command.Body)
		n++
	}
	batch := g.in.writes[:n:n]
	if g.in.writes = g.in.writes[n:]; len(g.in.writes) == 0 {
		g.in.writes = nil
	}
	return batch
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
	if err != nil || parts.Len() > 1 {
		g.pending.Add(-int64(len(writes)))
	}
	if err != nil {
		// Not stamping any more: nothing has happened, another server may do it.
		g.r.resubmit(writes)
	}
}

// nobody stands for the group whose batch an entry is, if it is none's.
const nobody = -1

// stamp stamps an entry and queues it in each of its partitions: as a local one, if
// it is a batch of its only partition, else as a rendezvous.
func (r *Replica) stamp(parts placement.Set, e *command.Entry, writes []*Write, home int) error {
	local := home != nobody && parts.Len() == 1
	if !local {
		e.Parts = parts
	}
	n := e.Stamps()
	if len(r.groups) == 1 {
		n = 0 // dense revisions follow from the log alone
	}
	err := r.seq.Reserve(parts, n, func(epoch uint64, stamp int64) {
		// Numbered under the lanes, so that numbers follow the order of the logs:
		// recover puts entries without a stamp of their own in order by them.
		e.Seq = r.nextSeq.Add(1)
		if len(r.groups) > 1 {
			e.Stamp = stamp
		}
		q := queued{epoch: epoch, data: e.AppendTo(make([]byte, 0, e.Size())), seq: e.Seq}
		if local {
			q.writes = writes
		} else {
			r.multi.add(e.Seq, writes)
		}
		for p := range parts.Each() {
			q.batch = p == home
			r.groups[p].queue = append(r.groups[p].queue, q)
		}
	})
	if err != nil {
		return err
	}
	for p := range parts.Each() {
		if p != home { // which is at work
			r.groups[p].wake()
		}
	}
	return nil
}

// proposeQueued gives one stamped entry to Raft. An entry of an ended epoch
// must not get into the log: the next epoch's recovery has looked at it.
func (g *group) proposeQueued(q *queued) {
	if !g.r.lead.current(q.epoch) || g.node.Propose(q.data) != nil {
		g.drop(q)
		g.r.lead.lost(q.epoch)
		return
	}
	if q.batch {
		g.waiting[q.seq] = q.writes
		g.open++
	}
}

func (g *group) drop(q *queued) {
	g.pending.Add(-int64(len(q.writes)))
	for _, w := range q.writes {
		w.fail(fault.LeaderChanged)
	}
}

// failWaiting tells those who wait for entries proposed here that the leader
// changed: whether they took effect is for the next one to know.
func (g *group) failWaiting() {
	for _, seq := range slices.Sorted(maps.Keys(g.waiting)) { // a simulation must repeat itself
		writes := g.waiting[seq]
		delete(g.waiting, seq)
		g.pending.Add(-int64(len(writes)))
		for _, w := range writes {
			w.fail(fault.LeaderChanged)
		}
	}
	g.open = 0
	g.in.mu.Lock()
	writes := g.in.writes
	g.in.writes = nil
	g.in.mu.Unlock()
	g.pending.Add(-int64(len(writes)))
	g.r.resubmit(writes)
}

// stop fails what waits here, but for writes that have not been proposed: nothing
// can have become of those. No Work runs any more.
func (g *group) stop(err error) {
	g.in.mu.Lock()
	writes := g.in.writes
	g.in.writes, g.in.stopped = nil, true
	g.in.mu.Unlock()
	for _, q := range g.queue {
		g.r.resubmit(q.writes)
	}
	g.queue = nil
	g.r.resubmit(writes)
	for _, seq := range slices.Sorted(maps.Keys(g.waiting)) {
		for _, w := range g.waiting[seq] {
			w.fail(err)
		}
	}
	g.waiting = map[uint64][]*Write{}
	g.wait.stop(err)
}

// submitMulti stamps a write that concerns several partitions.
func (r *Replica) submitMulti(w *Write) {
	if r.multi.full() {
		w.fail(fault.TooManyRequests)
		return
	}
	writes := []*Write{w}
	e := command.Entry{Commands: []command.Command{w.Command}, Origin: r.cfg.Origin}
	if r.stamp(w.Parts, &e, writes, nobody) != nil {
		r.resubmit(writes)
	}
}
