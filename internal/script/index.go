package script

import (
	"hash/maphash"
	"math/bits"
)

// An index finds the fields of a table by the hashes of their keys. It is one array:
// the hash of each field that there is room for, and behind these the slots, each with
// the position of a field plus one. So it is rebuilt without access to the keys, and
// its size is a function of the capacity alone. It is never iterated over.
//
// Hashes are seeded at random, so that no script can make its keys collide. Neither a
// result nor a price depends on them.
type index []uint32

// gone is in a slot whose field was deleted: a search goes on behind it.
const gone = 1<<32 - 1

// seed and the two numbers from it are of this process, and never seen from outside.
var (
	seed         = maphash.MakeSeed()
	mask, factor = maphash.String(seed, "mask"), maphash.String(seed, "factor") | 1
)

// hash is the hash of a key.
func hash(key Value) uint32 {
	if key.isString() {
		return uint32(maphash.String(seed, key.str()))
	}
	high, low := bits.Mul64(uint64(key.n)^mask, factor)
	return uint32(high ^ low)
}

// slotsFor is how many slots there are for so many fields: a power of two, of which
// more than half stay free.
func slotsFor(room int) int { return 1 << bits.Len(uint(2*room-1)) }

func newIndex(room int) index { return make(index, room+slotsFor(room)) }

// indexBytes is the size of an index in bytes.
func indexBytes(room int) int64 { return 4 * int64(room+slotsFor(room)) }

// lookup is the position of the live field that has a key, of that hash, or -1.
func (t *Table) lookup(key Value, h uint32) int {
	slots := t.index[cap(t.fields):]
	last := uint32(len(slots) - 1)
	for s := h & last; slots[s] != 0; s = (s + 1) & last {
		if i := slots[s] - 1; slots[s] != gone && t.index[i] == h && equal(t.fields[i].key, key) {
			return int(i)
		}
	}
	return -1
}

// enter notes the hash of the field at a position. There is none of that key.
func (t *Table) enter(h uint32, at int) {
	slots := t.index[cap(t.fields):]
	last := uint32(len(slots) - 1)
	s := h & last
	for slots[s] != 0 && slots[s] != gone {
		s = (s + 1) & last
	}
	t.index[at], slots[s] = h, uint32(at)+1
}

// strike takes the field at a position out of the index.
func (t *Table) strike(at int) {
	slots := t.index[cap(t.fields):]
	last := uint32(len(slots) - 1)
	s := t.index[at] & last
	for slots[s] != uint32(at)+1 {
		s = (s + 1) & last
	}
	slots[s] = gone
}

// reindex rebuilds the index of a table that has no tombstones.
func (t *Table) reindex() {
	t.index = newIndex(cap(t.fields))
	for i, f := range t.fields {
		t.enter(hash(f.key), i)
	}
}
