package placement

import "fmt"

// The encoded map: a version byte, the number of partitions, then one byte for
// each slot in order. It is replicated state and is also in every backend file.
const (
	version = 1
	size    = 2 + Slots
)

// Encode returns the map in the form that [Decode] reads.
func (m *Map) Encode() []byte {
	b := make([]byte, 0, size)
	b = append(b, version, uint8(m.partitions))
	return append(b, m.slots[:]...)
}

// Decode reads an encoded map. It takes nothing but what [Map.Encode] can have
// written.
func Decode(b []byte) (*Map, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("decode placement map: no bytes")
	}
	if b[0] != version {
		return nil, fmt.Errorf("decode placement map: version %d, this program knows %d", b[0], version)
	}
	if len(b) != size {
		return nil, fmt.Errorf("decode placement map: %d bytes, want %d", len(b), size)
	}
	m := &Map{partitions: int(b[1])}
	if m.partitions < 1 || m.partitions > MaxPartitions {
		return nil, fmt.Errorf("decode placement map: %d partitions, want 1 to %d", m.partitions, MaxPartitions)
	}
	for s, p := range b[2:] {
		if int(p) >= m.partitions {
			return nil, fmt.Errorf("decode placement map: slot %d lies in partition %d of %d", s, p, m.partitions)
		}
		m.slots[s] = p
	}
	return m, nil
}
