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
// the end. Version 4 is a map with pins, or in transit between slots: the rules, the pins
// (how many, and each with its length), a byte that is 1 in transit, and then the slots and
// the rules that it comes from, and the cursor. Version 5 is version 4 of a map in a transit that is
// apart. It is replicated state and is also in every
// backend file.
const (
	version        = 1
	versionRules   = 2
	versionTransit = 3
	versionSlots   = 4
	versionApart   = 5
	size           = 2 + Slots
)

// Early tells whether programs that know no pins and no moves of slots can read the map:
// those below level 3 of the cluster's version.
func (m *Map) Early() bool {
	if m.rules == nil {
		return true
	}
	t := m.rules.transit
	return len(m.rules.pins) == 0 && (t == nil || !t.Apart && t.From.slots == t.To.slots)
}

// Encode returns the map in the form that [Decode] reads.
func (m *Map) Encode() []byte {
	b := make([]byte, 0, size)
	if m.rules == nil {
		b = append(b, version, uint8(m.partitions))
		return append(b, m.slots[:]...)
	}
	v := byte(versionRules)
	switch {
	case m.rules.transit != nil && m.rules.transit.Apart:
		v = versionApart
	case !m.Early():
		v = versionSlots
	case m.rules.transit != nil:
		v = versionTransit
	}
	b = append(b, v, uint8(m.partitions))
	b = append(b, m.slots[:]...)
	b = appendRules(b, m.Rules())
	t := m.rules.transit
	if v >= versionSlots {
		b = appendPins(b, m.rules.pins)
		if t == nil {
			return append(b, 0)
		}
		b = append(append(b, 1), t.From.slots[:]...)
	}
	if t != nil {
		b = append(appendRules(b, t.From.Rules()), t.Cursor...)
	}
	return b
}

func appendPins(b []byte, pins []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(pins)))
	for _, key := range pins {
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
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
	m, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("decode placement map: %w", err)
	}
	if !bytes.Equal(m.Encode(), b) { // a number written longer than it need be
		return nil, fmt.Errorf("decode placement map: it is not in its shortest form")
	}
	return m, nil
}

func decode(b []byte) (*Map, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("no bytes")
	}
	v := b[0]
	if v < version || v > versionApart {
		return nil, fmt.Errorf("version %d, this program knows %d to %d", v, version, versionApart)
	}
	if len(b) < size || v == version && len(b) != size {
		return nil, fmt.Errorf("%d bytes, want %d", len(b), size)
	}
	m := &Map{partitions: int(b[1])}
	if m.partitions < 1 || m.partitions > MaxPartitions {
		return nil, fmt.Errorf("%d partitions, want 1 to %d", m.partitions, MaxPartitions)
	}
	if err := m.decodeSlots(b[2:size]); err != nil {
		return nil, err
	}
	if v == version {
		return m, nil
	}
	list, rest, err := decodeRules(b[size:])
	if err != nil {
		return nil, err
	}
	if v == versionRules && len(list) == 0 {
		return nil, fmt.Errorf("0 rules in version %d", versionRules)
	}
	to, from := m.WithRules(list), &Map{partitions: m.partitions, slots: m.slots}
	moves := v == versionTransit
	if v >= versionSlots {
		if rest, err = to.decodePins(rest); err != nil {
			return nil, err
		}
		if len(rest) == 0 {
			return nil, fmt.Errorf("it ends behind the pins")
		}
		moves, rest = rest[0] == 1, rest[1:]
		if moves && len(rest) < Slots {
			return nil, fmt.Errorf("%d bytes of the slots that it comes from, want %d", len(rest), Slots)
		}
		if moves {
			if err = from.decodeSlots(rest[:Slots]); err != nil {
				return nil, err
			}
			rest = rest[Slots:]
		}
	}
	if moves {
		return decodeTransit(from, to, rest, v == versionApart)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(rest))
	}
	return to, nil
}

func (m *Map) decodeSlots(b []byte) error {
	for s, p := range b {
		if int(p) >= m.partitions {
			return fmt.Errorf("slot %d lies in partition %d of %d", s, p, m.partitions)
		}
		m.slots[s] = p
	}
	return nil
}

// decodePins reads the pins at the front of b, and returns the rest of b.
func (m *Map) decodePins(b []byte) (rest []byte, err error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	last := ""
	for range n {
		var length uint64
		if length, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if length > uint64(len(b)) {
			return nil, fmt.Errorf("a pin of %d bytes", length)
		}
		key := string(b[:length])
		if _, ok := m.RuleFor(key); !ok || key <= last {
			return nil, fmt.Errorf("pin %q is out of order, or has no rule", key)
		}
		m.rules.pins, b, last = append(m.rules.pins, key), b[length:], key
	}
	return b, nil
}

// decodeTransit reads the rules that a map comes from and the cursor.
func decodeTransit(from, to *Map, b []byte, apart bool) (*Map, error) {
	list, cursor, err := decodeRules(b)
	if err != nil {
		return nil, fmt.Errorf("where it comes from: %w", err)
	}
	from = from.WithRules(list)
	spans := Difference(from, to)
	if len(spans) == 0 {
		return nil, fmt.Errorf("it goes where it comes from")
	}
	return transit(from, to, spans, apart).at(bytes.Clone(cursor)), nil
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
