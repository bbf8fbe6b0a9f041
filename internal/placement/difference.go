package placement

import (
	"bytes"

	"github.com/stoa-kv/stoa/internal/radix"
)

// Span is a range of keys, written as in etcd's requests: an end of one zero
// byte means every key from Key on.
type Span struct{ Key, End []byte }

func (s Span) open() bool  { return len(s.End) == 1 && s.End[0] == 0 }
func (s Span) empty() bool { return !s.open() && bytes.Compare(s.Key, s.End) >= 0 }

// Difference is where keys can be that two maps put into different partitions,
// in order and without overlap. Outside of it they agree, so that the cost of a move
// depends on the keys moved, not on all keys. Slots have keys everywhere: [Map.Run] finds
// those that move.
func Difference(from, to *Map) []Span {
	if from.slots != to.slots {
		return []Span{{nil, []byte{0}}}
	}
	var spans []Span
	for key := range radix.Diff(from.ruleTree(), to.ruleTree()) {
		if r := (Rule{Key: key}); from.above(r) != to.above(r) {
			spans = add(spans, r)
		}
	}
	return spans
}

func (m *Map) ruleTree() radix.Tree[place] {
	if m.rules == nil {
		return radix.Tree[place]{}
	}
	return m.rules.tree
}

// above is where the keys of a rule lie that no deeper rule is for, whether or not the
// map has the rule: all partitions if they spread.
func (m *Map) above(r Rule) Set {
	key := []byte(r.Key)
	if m.rules != nil {
		if slot, ok := m.rules.slot(key); ok {
			return Of(int(m.slots[slot]))
		}
	}
	if _, deep := levels(key); r.subtree() && deep == 0 {
		return m.All()
	}
	return Of(int(m.slots[m.HashSlot(key)]))
}

// add adds the keys that a rule is for, unless they are there already: rules
// come in order, so only the last span can hold them.
func add(spans []Span, r Rule) []Span {
	if n := len(spans); n > 0 && r.Key < string(spans[n-1].End) {
		return spans
	}
	s := Span{Key: []byte(r.Key)}
	if r.subtree() {
		s.End = append([]byte(r.Key[:len(r.Key)-1]), '/'+1)
	} else {
		s.End = append([]byte(r.Key), 0)
	}
	return append(spans, s)
}
