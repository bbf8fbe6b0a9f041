package placement

import "bytes"

// Transit is the state of a change from one map to another, in which keys move in their
// order: those below Cursor are placed by To, the others still by From.
type Transit struct {
	From, To *Map
	Cursor   []byte
	// Apart says that the cursor moves without the partitions that don't take part, so that
	// nothing which they ask of the map may depend on it.
	Apart bool

	spans []Span // where the two can differ
	parts Set
}

// Towards is the map in transit to one with other rules or slots, before the first key has
// moved: keys are where they are. If no key has to move it is the other map.
func (m *Map) Towards(to *Map) *Map { return m.towards(to, false) }

// TowardsApart is Towards with a transit that is apart.
func (m *Map) TowardsApart(to *Map) *Map { return m.towards(to, true) }

func (m *Map) towards(to *Map, apart bool) *Map {
	if m.Transit() != nil || to.Transit() != nil || m.partitions != to.partitions {
		panic("placement: only rules and slots can be changed, one after the other")
	}
	spans := Difference(m, to)
	if len(spans) == 0 {
		return to
	}
	return transit(m, to, spans, apart).at(nil)
}

func transit(from, to *Map, spans []Span, apart bool) *Transit {
	return &Transit{From: from, To: to, Apart: apart, spans: spans, parts: takingPart(from, to, spans)}
}

// takingPart are the partitions of the keys that move from one map to another, before and after.
// Of a transit that is apart it decides which commands depend on its cursor, so the result may not
// change with the release, as little as the slots of keys.
func takingPart(from, to *Map, spans []Span) (parts Set) {
	for s, p := range from.slots {
		if q := to.slots[s]; q != p {
			parts |= Of(int(p)) | Of(int(q))
		}
	}
	for _, s := range spans {
		if s.Still == nil { // a rule's: its keys move whatever their slots by hash do
			parts |= from.Range(s.Key, s.End) | to.Range(s.Key, s.End)
		}
	}
	return parts
}

// Parts are the partitions that take part: all others keep what they have.
func (t *Transit) Parts() Set { return t.parts }

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
	next := *t
	return next.at(bytes.Clone(cursor))
}

// Together is the map as it is, with a transit that isn't apart from now on.
func (t *Transit) Together() *Map {
	next := *t
	next.Apart = false
	return next.at(t.Cursor)
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

// spread is Map.Range for a range of more than one key. The maps may say less precisely where
// the keys of a range are than where those of its two parts are; where the parts meet counts for
// all partitions, then, not only for those that take part.
func (t *Transit) spread(key, end []byte) Set {
	switch {
	case t.Apart:
		return t.From.Range(key, end) | t.To.Range(key, end)
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
