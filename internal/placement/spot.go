package placement

import "github.com/cespare/xxhash/v2"

// Spot is where a key is: its placement prefix with the hash of that, its slot, and its
// partition.
type Spot struct {
	Prefix          []byte
	Hash            uint64
	Slot, Partition int
}

// Spot returns the spot of a key.
func (m *Map) Spot(key []byte) Spot {
	s := Spot{Prefix: Prefix(key)}
	s.Hash = xxhash.Sum64(s.Prefix)
	if t := m.Transit(); t != nil {
		m = t.of(key)
	}
	s.Slot = int(s.Hash % Slots)
	if m.rules != nil {
		if ruled, ok := m.rules.slot(key); ok {
			s.Slot = ruled
		}
	}
	s.Partition = int(m.slots[s.Slot])
	return s
}
