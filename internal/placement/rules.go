package placement

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/stoa-kv/stoa/internal/radix"
)

// Rule puts keys into a slot, regardless of their hash. A Key that ends in "/"
// stands for every key that begins with it, any other for that one key alone.
// Of the rules that match a key the longest counts.
type Rule struct {
	Key  string
	Slot int
}

// subtree tells whether the rule is for all keys under its own.
func (r Rule) subtree() bool { return strings.HasSuffix(r.Key, "/") }

// Bounds are the keys that it is for, as etcd's requests write them: a key, or a range.
func (r Rule) Bounds() (key, end []byte) {
	if key = []byte(r.Key); !r.subtree() {
		return key, nil
	}
	end = []byte(r.Key)
	end[len(end)-1]++ // behind the slash
	return key, end
}

// rules finds the one that a key falls under. Nearly all keys of a cluster fall
// under none, and should not pay for those that do: a lookup in the tree shows in a few
// instructions that no rule has their prefix.
type rules struct {
	tree    radix.Tree[place]
	pins    []string // in order; never written to
	transit *Transit
}

// place is where a rule puts its keys.
type place struct {
	slot uint16
	in   Set // the slot's partition
}

func (p place) bits() uint64 { return uint64(p.in) }

// WithRules is the map with other rules in the place of its own, and no pins. No two may
// have the same key, and none an empty one.
func (m *Map) WithRules(list []Rule) *Map {
	next := &Map{partitions: m.partitions, slots: m.slots}
	changed := next.Changed(list, nil)
	if changed.ruleTree().Len() != len(list) {
		panic("placement: two rules for one key")
	}
	return changed
}

// Changed is the map with rules added, or replaced where there is one for the key, and
// then others removed, none of which is a pin's. Its cost depends on the number of changes,
// not on that of rules.
func (m *Map) Changed(add []Rule, remove []string) *Map {
	tree := radix.Marked(place.bits)
	var pins []string
	if m.rules != nil {
		tree, pins = m.rules.tree, m.rules.pins
	}
	for _, r := range add {
		if r.Slot < 0 || r.Slot >= Slots || r.Key == "" {
			panic(fmt.Sprintf("placement: a rule for %q in slot %d", r.Key, r.Slot))
		}
		tree = tree.With(r.Key, place{uint16(r.Slot), Of(int(m.slots[r.Slot]))})
	}
	for _, key := range remove {
		tree = tree.Without(key)
	}
	next := &Map{partitions: m.partitions, slots: m.slots}
	if tree.Len() > 0 {
		next.rules = &rules{tree: tree, pins: pins}
	}
	return next
}

// Rules are the map's rules, ordered by key; of one in transit, those that it goes to.
func (m *Map) Rules() []Rule {
	return slices.Collect(m.EachRule())
}

// NumRules is the number of rules.
func (m *Map) NumRules() int {
	if m.rules == nil {
		return 0
	}
	return m.rules.tree.Len()
}

// EachRule yields the result of Rules.
func (m *Map) EachRule() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		if m.rules == nil {
			return
		}
		for key, p := range m.rules.tree.All() {
			if !yield(Rule{key, int(p.slot)}) {
				return
			}
		}
	}
}

// RuleFor returns the slot of the rule that has exactly this key.
func (m *Map) RuleFor(key string) (slot int, ok bool) {
	if m.rules == nil {
		return 0, false
	}
	p, ok := m.rules.tree.Get([]byte(key))
	return int(p.slot), ok
}

// RuleOver returns the slot that rules give to a key, or to all keys that begin with it
// if it ends in a slash and no deeper rule is for them.
func (m *Map) RuleOver(key string) (slot int, ok bool) {
	if m.rules == nil {
		return 0, false
	}
	return m.rules.slot([]byte(key))
}

// RuleUnder returns the slot of the first rule for keys that begin with a prefix.
func (m *Map) RuleUnder(prefix string) (slot int, ok bool) {
	if m.rules == nil {
		return 0, false
	}
	for n := m.rules.tree.Below([]byte(prefix)); n != nil; {
		if p, ok := n.Value(); ok {
			return int(p.slot), true
		}
		for first := range n.Next() {
			n = first
			break
		}
	}
	return 0, false
}

// slot is where a rule puts a key.
func (rs *rules) slot(key []byte) (slot int, ok bool) {
	_, p, ok := rs.over(key)
	return int(p.slot), ok
}

// over is the rule that counts for a key.
func (rs *rules) over(key []byte) (rule string, p place, ok bool) {
	for k, v := range rs.tree.Above(key) {
		if len(k) == len(key) || k[len(k)-1] == '/' {
			rule, p, ok = k, v, true
		}
	}
	return rule, p, ok
}

// above is where all keys are that begin with prefix, unless a deeper rule is for them.
func (rs *rules) above(prefix []byte) (set Set) {
	for k, p := range rs.tree.Above(prefix) {
		if k[len(k)-1] == '/' {
			set = p.in
		}
	}
	return set
}

// between is where the rules put keys that reach into [key, end) without holding all of
// it: those whose own key lies there, and those that begin before the range and hold
// its first keys. All keys of the range begin with prefix.
func (rs *rules) between(key, end, prefix []byte) Set {
	set := Set(rs.tree.Bits(key, end))
	for k, p := range rs.tree.Above(key) {
		if len(k) > len(prefix) && len(k) < len(key) && k[len(k)-1] == '/' {
			set |= p.in
		}
	}
	return set
}

// spread is the set of partitions of the keys in [key, end), more than one, of
// a map with rules. All of them begin with prefix.
func (m *Map) spread(key, end, prefix []byte) Set {
	set := m.rules.above(prefix)
	if set == 0 {
		if _, deep := levels(prefix); deep == 0 {
			return m.All()
		}
		set = Of(int(m.slots[HashSlot(prefix)]))
	}
	return set | m.rules.between(key, end, prefix)
}
