package store

import "hash/maphash"

// table finds a key's entry by hash. It is Go's map of strings in a third of the
// memory: the entries know their keys, and 12 bytes of room for each of them are
// nearly always in use.
//
// It grows by linear hashing: one segment after the other is split in two, so that
// inserting a key rehashes at most its own segment and the one being split. A segment is
// probed linearly from the slot of the hash until a free one.
type table struct {
	seed     maphash.Seed
	segments []segment
	mask     uint32 // 2^k−1, the least that is no less than the last segment's number
	n        int
}

type segment struct {
	hashes []uint32 // 0 where there is nothing
	slots  []*entry
	n      int
}

const (
	segmentKeys = 256 // on average
	segmentMin  = 8   // places
)

func newTable() table { return table{seed: maphash.MakeSeed(), segments: make([]segment, 1)} }

func (t *table) hash(key []byte) uint32 { return max(1, uint32(maphash.Bytes(t.seed, key))) }

// segment returns where a hash belongs: to that of its low bits, with one bit less
// if there is none yet.
func (t *table) segment(hash uint32) *segment {
	i := hash & t.mask
	if int(i) >= len(t.segments) {
		i &= t.mask >> 1
	}
	return &t.segments[i]
}

// get returns a key's entry, or nil.
func (t *table) get(key []byte) *entry {
	h := t.hash(key)
	s := t.segment(h)
	if i, ok := s.find(h, key); ok {
		return s.slots[i]
	}
	return nil
}

// add puts in the entry of a key that has none.
func (t *table) add(e *entry) {
	h := t.hash(e.key())
	t.segment(h).add(h, e)
	if t.n++; t.n > segmentKeys*len(t.segments) {
		t.split()
	}
}

// remove takes an entry out that is there.
func (t *table) remove(e *entry) {
	h := t.hash(e.key())
	s := t.segment(h)
	i, ok := s.find(h, e.key())
	if !ok {
		panic("store: a key is missing in the table")
	}
	s.remove(i)
	t.n--
}

// split divides the next segment between itself and a new one at the end.
func (t *table) split() {
	n := uint32(len(t.segments))
	if n > t.mask {
		t.mask = t.mask<<1 | 1
	}
	bit := t.mask ^ t.mask>>1 // by which the two differ
	old := t.segments[n^bit]
	var parts [2]segment
	half := func(hash uint32) *segment {
		if hash&bit == 0 {
			return &parts[0]
		}
		return &parts[1]
	}
	for _, h := range old.hashes {
		if h != 0 {
			half(h).n++
		}
	}
	parts[0].room()
	parts[1].room()
	for i, h := range old.hashes {
		if h != 0 {
			half(h).place(h, old.slots[i])
		}
	}
	t.segments[n^bit] = parts[0]
	t.segments = append(t.segments, parts[1])
}

// home is where the search for a hash begins. Its low bits are the same in all of
// the segment.
func (s *segment) home(hash uint32) int { return int(uint64(hash) * uint64(len(s.hashes)) >> 32) }

func (s *segment) next(i int) int {
	if i++; i < len(s.hashes) {
		return i
	}
	return 0
}

func (s *segment) find(hash uint32, key []byte) (int, bool) {
	if s.n == 0 {
		return 0, false
	}
	for i := s.home(hash); s.hashes[i] != 0; i = s.next(i) {
		if s.hashes[i] == hash && view(s.slots[i].key()) == view(key) {
			return i, true
		}
	}
	return 0, false
}

func (s *segment) add(hash uint32, e *entry) {
	if s.n++; s.n*8 > len(s.hashes)*7 {
		s.resize()
	}
	s.place(hash, e)
}

func (s *segment) place(hash uint32, e *entry) {
	i := s.home(hash)
	for s.hashes[i] != 0 {
		i = s.next(i)
	}
	s.hashes[i], s.slots[i] = hash, e
}

// remove takes a place out and moves those up that a search would no longer reach.
func (s *segment) remove(i int) {
	for j := s.next(i); s.hashes[j] != 0; j = s.next(j) {
		// j may move to i unless its home lies in between, i excluded.
		if h := s.home(s.hashes[j]); i < j && (h <= i || h > j) || i > j && h <= i && h > j {
			s.hashes[i], s.slots[i] = s.hashes[j], s.slots[j]
			i = j
		}
	}
	s.hashes[i], s.slots[i] = 0, nil
	if s.n--; len(s.hashes) > segmentMin && s.n*2 < len(s.hashes) {
		s.resize()
	}
}

// resize sets the capacity for the present keys and a few more.
func (s *segment) resize() {
	old := *s
	s.room()
	for i, h := range old.hashes {
		if h != 0 {
			s.place(h, old.slots[i])
		}
	}
}

func (s *segment) room() {
	n := max(segmentMin, s.n+s.n/4)
	s.hashes, s.slots = make([]uint32, n), make([]*entry, n)
}
