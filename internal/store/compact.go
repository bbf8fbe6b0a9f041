package store

import (
	"math"
	"slices"
)

// sweep is the physical part of compaction: it finds the revisions that a compaction has
// made dead and hands them to the backend, a piece at a time.
type sweep struct {
	// aged has every key that has a past, each once: nothing else can have
	// anything to compact.
	aged queue
	// stale are the queued keys that have none here, since they have moved away.
	stale map[*entry]struct{}

	allowed int64 // no pass works for a later compaction

	target int64   // the compaction that the pass in progress works for
	left   int     // keys that the pass has still to visit
	found  []Dead  // by the pass in progress
	dead   []Dead  // by finished passes, ascending, not yet cut
	late   []Dead  // of keys that came from other stores, otherwise like dead
	done   int64   // every revision dead at this compaction is or was in dead or late
	passes []int64 // the compactions of finished passes, ascending, of which some may still be in those

	// inherited are the sweeps of stores from which keys have come; see follow.
	inherited []*sweep

	handed   int64    // Swept of the last cut
	flushed  position // end of the last released cut
	reported int64    // Swept of the last released cut
}

// Compact makes everything below rev unreadable, at once. The revisions that it
// makes dead are removed later, a piece at each Release. The caller has checked rev
// against the current revision; a compaction that is not above the last is ignored.
func (s *Store) Compact(rev int64) {
	s.compacted = max(s.compacted, rev)
}

// sweepOn visits as many keys as its budget allows: the piece bounds the time for which
// writers wait for it, the budget its share of the CPU.
func (s *Store) sweepOn() {
	s.RLock()
	budget := max(s.bounds.budget, s.sweep.aged.len()/sweepShare)
	s.RUnlock()
	for n := 0; n < budget; n += s.bounds.piece {
		s.Lock()
		more := s.sweepKeys(s.bounds.piece)
		found := s.sweep.found
		s.Unlock()
		if more {
			continue
		}
		// Only the flusher changes found between passes: sort it without the lock,
		// but a copy, since others read it when keys move. In order of revision the
		// backend frees whole pages, and a key's last value never outlives its
		// tombstone across a crash.
		found = slices.Clone(found)
		slices.SortFunc(found, compareDead)
		s.Lock()
		s.sweep.found = found
		s.sweep.finish()
		again := s.sweep.done < s.sweep.allowed
		s.Unlock()
		if !again {
			return
		}
	}
}

// sweepKeys visits up to n keys and tells whether the pass has more to do.
func (s *Store) sweepKeys(n int) bool {
	w := &s.sweep
	if w.target == w.done {
		if w.done >= w.allowed {
			return false
		}
		w.target, w.left = w.allowed, w.aged.len()
	}
	for ; n > 0 && w.left > 0; n-- {
		w.left--
		e := w.aged.pop()
		if _, stale := w.stale[e]; stale {
			delete(w.stale, e)
			continue
		}
		var gone bool
		if w.found, gone = e.compact(w.target, w.found); gone {
			s.tombstones.remove(e)
			s.keys.remove(e)
		} else if e.past != nil {
			w.aged.push(e)
		}
	}
	return w.left > 0
}

func compareDead(a, b Dead) int { return a.Compare(b.Revision) }

// finish ends a pass whose dead revisions have been sorted.
func (w *sweep) finish() {
	if w.target == w.done {
		return
	}
	if len(w.dead) == 0 {
		w.dead = w.found
	} else {
		w.dead = append(w.dead, w.found...)
		slices.SortFunc(w.dead, compareDead)
	}
	w.found, w.done = nil, w.target
	w.passes = append(w.passes, w.target)
}

// No request waits for the physical part of a compaction, but all servers execute it at
// the same time, and puts share the CPU with it. So each flush does a bounded share of the
// work, which grows with the backlog and so keeps up with any rate of writes.
const (
	sweepShare = 64
	deadShare  = 32
)

// take hands over n dead revisions, or their share if that is more, and the compaction
// that is complete with them.
func (w *sweep) take(n int) (dead []Dead, swept int64) {
	all := len(w.dead) + len(w.late)
	n = min(max(n, all/deadShare), all)
	if bound, bounded := w.bound(); bounded || len(w.late) > 0 {
		dead = w.oldest(n, bound)
	} else {
		dead, w.dead = w.dead[:n:n], w.dead[n:]
	}
	w.handed = w.complete()
	return dead, w.handed
}

// complete is the newest compaction of which nothing is left: what is dead at one is below it. Where compactions
// come fast there are always some of later ones.
func (w *sweep) complete() int64 {
	if len(w.dead)+len(w.late) == 0 {
		w.dead, w.late, w.passes = nil, nil, nil
		return w.done
	}
	oldest := int64(math.MaxInt64)
	for _, list := range [...][]Dead{w.dead, w.late} {
		if len(list) > 0 {
			oldest = min(oldest, list[0].Main)
		}
	}
	complete := w.handed
	for len(w.passes) > 0 && w.passes[0] <= oldest {
		complete, w.passes = w.passes[0], w.passes[1:]
	}
	return complete
}

// oldest takes up to n dead revisions below a bound, in their order.
func (w *sweep) oldest(n int, bound Revision) []Dead {
	list := make([]Dead, 0, n)
	for len(list) < n {
		from := &w.dead
		if len(w.dead) == 0 || len(w.late) > 0 && w.late[0].Less(w.dead[0].Revision) {
			from = &w.late
		}
		if !(*from)[0].Less(bound) {
			break
		}
		list = append(list, (*from)[0])
		*from = (*from)[1:]
	}
	return list
}

// queue is a FIFO of keys in chunks, so that a push never copies it.
type queue struct {
	head, tail *entries
	n          int
}

type entries struct {
	next     *entries
	from, to int
	items    [512]*entry
}

func (q *queue) len() int { return q.n }

func (q *queue) push(e *entry) {
	if q.tail == nil || q.tail.to == len(q.tail.items) {
		c := &entries{}
		if q.tail == nil {
			q.head = c
		} else {
			q.tail.next = c
		}
		q.tail = c
	}
	q.tail.items[q.tail.to] = e
	q.tail.to++
	q.n++
}

func (q *queue) pop() *entry {
	c := q.head
	e := c.items[c.from]
	c.items[c.from] = nil
	c.from++
	q.n--
	if c.from == len(c.items) {
		if q.head = c.next; q.head == nil {
			q.tail = nil
		}
	}
	return e
}
