package placement

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The encoded map: a version byte, the number of partitions, then one byte for
// each slot in order. In version 2 the rules follow, ordered by key: how many,
// and for each its slot and its key, whose length comes first; numbers are
// uvarints. A map without rules is written as version 1. Version 3 is a map in
// transit: the rules that it goes to, those that it comes from, and the cursor to
// the end. It is replicated state and is also in every backend file.
const (
	version        = 1
	versionRules   = 2
	versionTransit = 3
	size           = 2 + Slots
)

// Encode returns the map in the form that [Decode] reads.
func (m *Map) Encode() []byte {
	b := make([]byte, 0, size)
	if m.rules == nil {
		b = append(b, version, uint8(m.partitions))
		return append(b, m.slots[:]...)
	}
	v := byte(versionRules)
	if m.rules.transit != nil {
		v = versionTransit
	}
	b = append(b, v, uint8(m.partitions))
	b = append(b, m.slots[:]...)
	b = appendRules(b, m.Rules())
	if t := m.rules.transit; t != nil {
		b = append(appendRules(b, t.From.Rules()), t.Cursor...)
	}
	return b
}

func appendRules(b []byte, list []Rule) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, r := range list {
		b = binary.AppendUvarint(b, uint64(r.Slot))
		b = binary.AppendUvarint(b, uint64(len(r.Key)))
		b = append(b, r.Key...)
	}
	return b
}

// Equal tells whether two maps are the same.
func (m *Map) Equal(o *Map) bool { return m == o || bytes.Equal(m.Encode(), o.Encode()) }

// Decode reads an encoded map. It refuses any input that [Map.Encode] can't have
// written.
func Decode(b []byte) (*Map, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("decode placement map: no bytes")
	}
	if b[0] < version || b[0] > versionTransit {
		return nil, fmt.Errorf("decode placement map: version %d, this program knows %d to %d", b[0], version, versionTransit)
	}
	if len(b) < size || b[0] == version && len(b) != size {
		return nil, fmt.Errorf("decode placement map: %d bytes, want %d", len(b), size)
	}
	m := &Map{partitions: int(b[1])}
	if m.partitions < 1 || m.partitions > MaxPartitions {
		return nil, fmt.Errorf("decode placement map: %d partitions, want 1 to %d", m.partitions, MaxPartitions)
	}
	for s, p := range b[2:size] {
		if int(p) >= m.partitions {
			return nil, fmt.Errorf("decode placement map: slot %d lies in partition %d of %d", s, p, m.partitions)
		}
		m.slots[s] = p
	}
	if b[0] == version {
		return m, nil
	}
	list, rest, err := decodeRules(b[size:])
	if err != nil {
		return nil, fmt.Errorf("decode placement map: %w", err)
	}
	if b[0] == versionRules && len(list) == 0 {
		return nil, fmt.Errorf("decode placement map: 0 rules in version %d", versionRules)
	}
	to := m.WithRules(list)
	if b[0] == versionTransit {
		if list, rest, err = decodeRules(rest); err != nil {
			return nil, fmt.Errorf("decode placement map: where it comes from: %w", err)
		}
		from := m.WithRules(list)
		if to.Equal(from) {
			return nil, fmt.Errorf("decode placement map: it goes where it comes from")
		}
		to, rest = (&Transit{From: from, To: to, spans: Difference(from, to)}).at(bytes.Clone(rest)), nil
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("decode placement map: %d bytes too many", len(rest))
	}
	if !bytes.Equal(to.Encode(), b) { // a number written longer than it need be
		return nil, fmt.Errorf("decode placement map: it is not in its shortest form")
	}
	return to, nil
}

// decodeRules returns the rules at the front of b, and the rest of b.
func decodeRules(b []byte) ([]Rule, []byte, error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, nil, err
	}
	if n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%d rules in %d bytes", n, len(b))
	}
	list := make([]Rule, n)
	for i := range list {
		var slot, length uint64
		if slot, b, err = uvarint(b); err != nil {
			return nil, nil, err
		}
		if length, b, err = uvarint(b); err != nil {
			return nil, nil, err
		}
		if slot >= Slots || length == 0 || length > uint64(len(b)) {
			return nil, nil, fmt.Errorf("rule %d: slot %d, key of %d bytes", i, slot, length)
		}
		list[i] = Rule{string(b[:length]), int(slot)}
		b = b[length:]
		if i > 0 && list[i].Key <= list[i-1].Key {
			return nil, nil, fmt.Errorf("rule %d for %q is out of order", i, list[i].Key)
		}
	}
	return list, b, nil
}

func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("the rules end too early")
	}
	return v, b[n:], nil
}
