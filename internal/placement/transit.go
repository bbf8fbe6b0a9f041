package placement

import "bytes"

// Transit is the state of a change from one map to another, in which keys move in their
// order: those below Cursor are placed by To, the others still by From.
type Transit struct {
	From, To *Map
	Cursor   []byte

	spans []Span // where the two can differ
}

// Towards is the map in transit to one with other rules or slots, before the first key has
// moved: keys are where they are. If no key has to move it is the other map.
func (m *Map) Towards(to *Map) *Map {
	if m.Transit() != nil || to.Transit() != nil || m.partitions != to.partitions {
		panic("placement: only rules and slots can be changed, one after the other")
	}
	spans := Difference(m, to)
	if len(spans) == 0 {
		return to
	}
	return (&Transit{From: m, To: to, spans: spans}).at(nil)
}

// Transit returns the transit of the map, nil if there is none.
func (m *Map) Transit() *Transit {
	if m.rules == nil {
		return nil
	}
	return m.rules.transit
}

// Settled is the map at the end of its transit.
func (m *Map) Settled() *Map {
	if t := m.Transit(); t != nil {
		return t.To
	}
	return m
}

// Advance is the map after the keys below a cursor have moved.
func (t *Transit) Advance(cursor []byte) *Map {
	return (&Transit{From: t.From, To: t.To, spans: t.spans}).at(bytes.Clone(cursor))
}

// at makes the map. Of its rules, nothing but the transit and the pins are used.
func (t *Transit) at(cursor []byte) *Map {
	t.Cursor = cursor
	next := &rules{tree: t.To.ruleTree(), transit: t}
	if t.To.rules != nil {
		next.pins = t.To.rules.pins
	}
	return &Map{partitions: t.To.partitions, slots: t.To.slots, rules: next}
}

// Ahead is where keys can be that have still to move and are below a bound; nil
// stands for no bound.
func (t *Transit) Ahead(bound []byte) []Span {
	var ahead []Span
	if len(bound) == 1 && bound[0] == 0 {
		return nil // it would stand for every key, and none is below it
	}
	for _, s := range t.spans {
		if bytes.Compare(s.Key, t.Cursor) < 0 {
			s.Key = t.Cursor
		}
		if bound != nil && (s.open() || bytes.Compare(bound, s.End) < 0) {
			s.End = bound
		}
		if !s.empty() {
			ahead = append(ahead, s)
		}
	}
	return ahead
}

// of is the map that counts for a key.
func (t *Transit) of(key []byte) *Map {
	if bytes.Compare(key, t.Cursor) < 0 {
		return t.To
	}
	return t.From
}

// spread is Map.Range for a range of more than one key.
func (t *Transit) spread(key, end []byte) Set {
	switch {
	case bytes.Compare(end, t.Cursor) <= 0:
		return t.To.Range(key, end)
	case bytes.Compare(key, t.Cursor) >= 0:
		return t.From.Range(key, end)
	}
	return t.To.Range(key, t.Cursor) | t.From.Range(t.Cursor, end)
}

// Wide is Range for as long as the transit lasts: wherever the cursor is, the keys of
// the range are in these partitions. Without a transit it is the same as Range.
func (m *Map) Wide(key, end []byte) Set {
	if t := m.Transit(); t != nil {
		return t.From.Range(key, end) | t.To.Range(key, end)
	}
	return m.Range(key, end)
}
