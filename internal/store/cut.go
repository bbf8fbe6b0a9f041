package store

import "iter"

// Cut has the changes of a store between two cuts: those that have to be made durable
// so that History holds everything up to here. It stays readable, without the
// lock, until it is released.
type Cut struct {
	Index, Term uint64
	Rev         int64
	Sums        Sums
	// Compacted is the store's compaction revision (-1: never); Swept is the
	// newest compaction revision for which every dead revision is in this cut's
	// Dead or an earlier one's.
	Compacted, Swept int64
	Dead             []Dead // ascending, to be removed after the changes were written
	// Sweep is the compaction up to which Release may go on removing things:
	// Compacted, unless the flusher lowers it because it still needs them.
	Sweep int64

	chunks   []*chunk
	skip     int
	from, to position
}

// Dead is a revision that compaction has made dead: unreadable, and to be removed.
type Dead struct {
	Revision
	Tombstone bool
}

// Len is the number of changes.
func (c *Cut) Len() int { return int(c.to - c.from) }

// Cursor returns a function that steps through the changes in ascending order
// of revision.
func (c *Cut) Cursor() func() (*Change, bool) {
	chunks, at, left := c.chunks, c.skip, c.Len()
	return func() (*Change, bool) {
		if left == 0 {
			return nil, false
		}
		if at == chunkChanges {
			chunks, at = chunks[1:], 0
		}
		ch := &chunks[0].items[at]
		at++
		left--
		return ch, true
	}
}

// Changes returns the changes in ascending order of revision.
func (c *Cut) Changes() iter.Seq[*Change] {
	return func(yield func(*Change) bool) {
		next := c.Cursor()
		for ch, ok := next(); ok && yield(ch); ch, ok = next() {
		}
	}
}

// Cut returns the changes since the last one, in constant time; after keys have moved
// here, in time linear in the changes that they bring along. There is one cut at a time:
// it must be released before the next is made. The locks of all stores between which keys
// move are held.
func (s *Store) Cut() Cut {
	c := Cut{
		Index: s.index, Term: s.term, Rev: s.rev, Sums: s.sums,
		Compacted: s.compacted, Sweep: s.compacted,
		from: s.sweep.flushed, to: s.log.next,
	}
	c.chunks, c.skip = s.log.since(c.from)
	c.Dead, c.Swept = s.sweep.take(s.bounds.dead)
	s.arrivals.takeCut()
	return c
}

// Dirty tells whether a cut would hold anything to make durable.
func (s *Store) Dirty() bool {
	return s.sweep.flushed < s.log.next || len(s.sweep.dead)+len(s.sweep.late) > 0 || s.sweep.reported < s.compacted
}

// Release drops a cut that History now holds, and then continues the
// physical part of compaction. It takes the lock itself, in short pieces.
func (s *Store) Release(c Cut) {
	s.Lock()
	s.arrivals.cut = nil
	s.sweep.flushed = c.to
	s.sweep.reported = c.Swept
	s.sweep.allowed = c.Sweep
	s.log.trim(c.to, s.bounds.windowBytes, s.bounds.windowChunks)
	s.Unlock()
	s.sweepOn()
}

// bounds are how much is done at once and how much stays in memory; fields, so
// that tests reach the edges with little data.
type bounds struct {
	windowBytes, windowChunks int // of the change log, behind the flushed part
	dead                      int // revisions in one cut, unless very many wait
	piece, budget             int // keys swept under one lock, and at one Release, unless very many wait
}

var defaultBounds = bounds{
	windowBytes: 4 << 20, windowChunks: 256,
	dead:  1_000,
	piece: 250, budget: 5_000,
}
