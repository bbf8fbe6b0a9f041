package placement

import (
	"bytes"
	"slices"

	"github.com/stoa-kv/stoa/internal/radix"
)

// Span is a range of keys, written as in etcd's requests: an end of one zero
// byte means every key from Key on.
type Span struct {
	Key, End []byte
	// Still, if not nil, has the slots whose keys are certain to stay: of a key in the
	// span, its [HashSlot] is enough to know.
	Still *[Slots]bool
}

func (s Span) open() bool  { return len(s.End) == 1 && s.End[0] == 0 }
func (s Span) empty() bool { return !s.open() && bytes.Compare(s.Key, s.End) >= 0 }

// Difference is where keys can be that two maps put into different partitions,
// in order and without overlap. Outside of it they agree, so that the cost of a move
// depends on the keys moved, not on all keys. Slots have keys everywhere: [Map.Run] and
// [Span].Still find those that move.
func Difference(from, to *Map) []Span {
	var spans []Span
	if from.slots == to.slots {
		for key := range radix.Diff(from.ruleTree(), to.ruleTree()) {
			spans = addIfMoved(spans, from, to, key)
		}
		return spans
	}
	for _, key := range ruleKeys(from, to) {
		spans = addIfMoved(spans, from, to, key)
	}
	return fill(spans, from.still(to))
}

// ruleKeys are the keys of the rules of two maps, in order.
func ruleKeys(from, to *Map) []string {
	var keys []string
	for _, m := range [...]*Map{from, to} {
		for r := range m.EachRule() {
			keys = append(keys, r.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// still are the slots that both maps have in one partition.
func (m *Map) still(to *Map) *[Slots]bool {
	still := &[Slots]bool{}
	for s, p := range m.slots {
		still[s] = p == to.slots[s]
	}
	return still
}

// fill adds the spans between those of rules that move their keys. Whatever other rules there
// are leave their keys where they are: there, a key moves by its hash or not at all.
func fill(ruled []Span, still *[Slots]bool) []Span {
	var spans []Span
	var from []byte
	for _, s := range ruled {
		if bytes.Compare(from, s.Key) < 0 {
			spans = append(spans, Span{from, s.Key, still})
		}
		spans = append(spans, s)
		from = s.End
	}
	return append(spans, Span{from, []byte{0}, still})
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
	return Of(int(m.slots[HashSlot(key)]))
}

// addIfMoved adds the keys that a rule is for, if the maps differ there, and unless they are there
// already: rules come in order, so only the last span can hold them.
func addIfMoved(spans []Span, from, to *Map, key string) []Span {
	r := Rule{Key: key}
	if from.above(r) == to.above(r) {
		return spans
	}
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
