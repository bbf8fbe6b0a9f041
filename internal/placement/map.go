package placement

import (
	"bytes"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

const (
	// Slots is the number of slots that keys are hashed to. It never changes, so that
	// a slot is the unit that can move between partitions.
	Slots = 1024
	// MaxPartitions is the width of a [Set].
	MaxPartitions = 64
)

// Map gives every key its partition. Immutable.
type Map struct {
	partitions int
	slots      [Slots]uint8
	rules      *rules // nil if there are none
}

// New is the map of a new cluster: the slots dealt out evenly in runs.
func New(partitions int) *Map {
	if partitions < 1 || partitions > MaxPartitions {
		panic(fmt.Sprintf("placement: %d partitions, want 1 to %d", partitions, MaxPartitions))
	}
	m := &Map{partitions: partitions}
	for s := range m.slots {
		m.slots[s] = uint8(s * partitions / Slots)
	}
	return m
}

// Partitions is how many partitions there are.
func (m *Map) Partitions() int { return m.partitions }

// All is the set of all partitions.
func (m *Map) All() Set { return All(m.partitions) }

// Slot is the slot of a key. That a map may be in transit costs those without rules
// nothing.
func (m *Map) Slot(key []byte) int {
	if m.rules != nil {
		if t := m.rules.transit; t != nil {
			return t.of(key).Slot(key)
		}
		if s, ok := m.rules.slot(key); ok {
			return s
		}
	}
	return HashSlot(key)
}

// HashSlot is the slot of a key that no rule is for.
func HashSlot(key []byte) int { return int(xxhash.Sum64(Prefix(key)) % Slots) }

// Partition is the partition of a key.
func (m *Map) Partition(key []byte) int {
	if m.partitions == 1 {
		return 0
	}
	if t := m.Transit(); t != nil {
		m = t.of(key)
	}
	return int(m.slots[m.Slot(key)])
}

// Table is the partition of every slot, in order; of a map in transit, of the one that it
// goes to.
func (m *Map) Table() []byte { return bytes.Clone(m.slots[:]) }

// SlotsOf is how many slots a partition has; in transit, will have.
func (m *Map) SlotsOf(partition int) int {
	n := 0
	for _, p := range m.slots {
		if int(p) == partition {
			n++
		}
	}
	return n
}

// Range is the set of partitions that can hold keys of a range. The range is
// written as in etcd's requests: an empty end means the one key, an end of one
// zero byte means every key from key on. A range without keys still names the
// partition of its first key, which can then say that it is empty.
func (m *Map) Range(key, end []byte) Set {
	switch {
	case m.partitions == 1:
		return Of(0)
	case len(end) == 1 && end[0] == 0:
		return m.All()
	case len(end) == 0 || IsPoint(key, end):
		return Of(m.Partition(key))
	case bytes.Compare(key, end) >= 0:
		return Of(m.Partition(key))
	}
	// Only a prefix that goes down two levels is certain to be the placement
	// prefix of all of the range: below one level, each key may lie in a
	// further directory or in none.
	prefix := shared(key, end)
	if m.rules != nil {
		if t := m.rules.transit; t != nil {
			return t.spread(key, end)
		}
		return m.spread(key, end, prefix)
	}
	if _, deep := levels(prefix); deep > 0 {
		return Of(m.Partition(prefix))
	}
	return m.All()
}

// IsPoint recognizes [key, key+"\x00"), the other way to write a single key. With the empty key
// it is not: that is every key.
func IsPoint(key, end []byte) bool {
	n := len(key)
	return n > 0 && len(end) == n+1 && end[n] == 0 && bytes.Equal(key, end[:n])
}
