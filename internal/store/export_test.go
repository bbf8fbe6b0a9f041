package store

import "github.com/stoa-kv/stoa/internal/kvwire"

// Tighten makes a store keep and do as little at once as it can, so that a
// test of a few hundred changes goes through the file, and through a
// compaction in many pieces.
func (s *Store) Tighten() {
	s.bounds = bounds{windowBytes: 0, windowChunks: 0, dead: 3, piece: 2, budget: 4}
}

// Slow makes a store compact in many pieces, as Tighten does, but leaves it its
// window.
func (s *Store) Slow() {
	s.Tighten()
	s.bounds.windowBytes, s.bounds.windowChunks = defaultBounds.windowBytes, defaultBounds.windowChunks
}

// InMemory is how many changes the log holds.
func (s *Store) InMemory() int { return int(s.log.next - s.log.base) }

// With adds a key.
func (s *Sums) With(kv kvwire.KeyValue) { s.change(kv.Key(), kvwire.KeyValue{}, kv) }

// Replace changes a key's value.
func (s *Sums) Replace(before, after kvwire.KeyValue) { s.change(before.Key(), before, after) }

// Resolved tells whether there is nothing left for Resolve to do.
func (f *Found) Resolved() bool { return len(f.missing) == 0 }

// Swept is the newest compaction whose dead revisions are not in History any more.
func (s *Store) Swept() int64 { return s.sweep.reported }
