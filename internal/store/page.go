package store

import "github.com/stoa-kv/stoa/internal/kvwire"

// Stored is a key that exists, with a value that History has.
type Stored struct {
	Revision
	Kv    kvwire.KeyValue
	entry *entry
}

// pageKeys bounds the keys that are visited under one lock.
const pageKeys = 250

// Page appends keys, in order from a key on, whose values History has: as many as have so many
// bytes, but no more than are visited in a tenth of a millisecond. next is where to go on, nil at
// the end. It takes the read lock itself.
func (s *Store) Page(to []Stored, from []byte, bytes int) (list []Stored, next []byte) {
	s.RLock()
	defer s.RUnlock()
	recent, visited := s.firstRecent(), 0
	s.live.ascend(s.live.seek(from), s.live.end(), func(e *entry) bool {
		if visited == pageKeys || bytes <= 0 {
			next = append(next, e.key()...)
			return false
		}
		visited++
		kv := e.kv()
		bytes -= kv.Len()
		if at := (Revision{kv.ModRevision(), int64(e.sub)}); at.Less(recent) {
			to = append(to, Stored{at, kv, e})
		}
		return true
	})
	return to, next
}

// Still reports whether that is the key's value still. It takes the read lock itself.
func (s *Store) Still(c Stored) bool {
	s.RLock()
	defer s.RUnlock()
	now, _ := c.entry.kv().Pointer()
	then, _ := c.Kv.Pointer()
	return now == then
}
