package store

import (
	"fmt"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Mark is a moment to which [Store.Undo] can go back.
type Mark struct {
	rev, lastDelete int64
	next            position
	last            Revision
}

// Mark returns the current state for Undo. It is valid until the lock is released.
func (s *Store) Mark() Mark {
	return Mark{rev: s.rev, lastDelete: s.lastDelete, next: s.log.next, last: s.log.last}
}

// Undo rolls back all changes made since a mark. That takes about as long as making
// them did. The lock has been held since the mark, so
// that no reader, cut or move has seen any of them.
func (s *Store) Undo(to Mark) {
	for s.log.next > to.next {
		c := s.log.newest()
		if c.Delete {
			s.undelete(c)
		} else {
			s.unput(c)
		}
		s.log.drop()
	}
	s.rev, s.lastDelete, s.log.last = to.rev, to.lastDelete, to.last
}

func (s *Store) undelete(c *Change) {
	e := s.keys.get(c.Kv.Key())
	s.tombstones.remove(e)
	e.past.drop() // the tombstone
	s.reinstate(e, c)
	s.live.add(e)
	s.bytes += int64(e.kv().Len())
	s.sums.change(e.key(), kvwire.KeyValue{}, e.kv())
	s.reattach(e, 0, e.kv().Lease())
}

func (s *Store) unput(c *Change) {
	e := s.keys.get(c.Kv.Key())
	lease := c.Kv.Lease()
	s.bytes -= int64(c.Kv.Len())
	switch {
	case c.Kv.Version() > 1:
		s.reinstate(e, c)
		s.bytes += int64(e.kv().Len())
		s.sums.change(c.Kv.Key(), c.Kv, e.kv())
		s.reattach(e, lease, e.kv().Lease())
		return
	case e.past != nil && len(e.past.marks) > 0: // it was deleted before
		s.live.remove(e)
		e.set(kvwire.Tombstone(c.Kv.Key()))
		s.tombstones.add(e)
	default: // the sweep may have it queued, and will find nothing to do
		s.live.remove(e)
		s.keys.remove(e)
	}
	s.sums.change(c.Kv.Key(), c.Kv, kvwire.KeyValue{})
	s.reattach(e, lease, 0)
}

// reinstate makes the newest revision in a key's past the current one again, which c
// has superseded.
func (s *Store) reinstate(e *entry, c *Change) {
	m := e.past.drop()
	kv := c.Prev
	if m.main == c.Main { // Prev is from before the whole operation
		kv = s.change(m.rev()).Kv
	}
	if kv.ModRevision() != m.main {
		panic(fmt.Sprintf("store: change %d.%d can't be taken back: it superseded revision %d, and knows %d",
			c.Main, c.Sub, m.main, kv.ModRevision()))
	}
	e.set(kv)
	e.sub = m.sub
}

// drop takes out the newest mark.
func (p *past) drop() mark {
	n := len(p.marks) - 1
	m := p.marks[n]
	p.marks = p.marks[:n]
	return m
}

// newest is the change that was appended last.
func (l *changeLog) newest() *Change {
	tail := l.chunks[len(l.chunks)-1]
	return &tail.items[tail.n-1]
}

// drop takes out the newest change, which no cut holds.
func (l *changeLog) drop() {
	tail := l.chunks[len(l.chunks)-1]
	tail.n--
	size := tail.items[tail.n].Kv.Len()
	tail.items[tail.n] = Change{}
	tail.bytes -= size
	l.bytes -= size
	if l.next--; tail.n == 0 {
		l.chunks[len(l.chunks)-1] = nil
		l.chunks = l.chunks[:len(l.chunks)-1]
	}
}
