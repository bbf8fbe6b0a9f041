package placement

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Rule puts keys into a slot, whatever their hash says. A Key that ends in "/"
// stands for every key that begins with it, any other for that one key alone.
// Of the rules that match a key the longest counts.
type Rule struct {
	Key  string
	Slot int
}

// subtree tells whether the rule is for all keys under its own.
func (r Rule) subtree() bool { return strings.HasSuffix(r.Key, "/") }

// rules finds the one that a key falls under. Nearly all keys of a cluster fall
// under none, and are to pay nothing for those that do: if no rule lies under a
// key's first directory, none can match it, and a few instructions tell.
type rules struct {
	sorted  []Rule
	slots   map[string]uint16 // by Rule.Key
	tops    Filter
	root    bool // there is a rule for "/"
	longest int  // bytes of a key
	transit *Transit
}

// WithRules is the map with other rules in the place of its own. No two may have
// the same key, and none an empty one.
func (m *Map) WithRules(list []Rule) *Map {
	next := &Map{partitions: m.partitions, slots: m.slots}
	if len(list) == 0 {
		return next
	}
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b Rule) int { return strings.Compare(a.Key, b.Key) })
	next.rules = index(sorted)
	return next
}

func index(sorted []Rule) *rules {
	rs := &rules{sorted: sorted, slots: make(map[string]uint16, len(sorted))}
	for i, r := range sorted {
		if r.Slot < 0 || r.Slot >= Slots || r.Key == "" || i > 0 && sorted[i-1].Key == r.Key {
			panic(fmt.Sprintf("placement: rule %d for %q in slot %d", i, r.Key, r.Slot))
		}
		rs.slots[r.Key] = uint16(r.Slot)
		rs.tops.Add([]byte(r.Key))
		rs.root = rs.root || r.Key == "/"
		rs.longest = max(rs.longest, len(r.Key))
	}
	return rs
}

// Rules are the map's rules, ordered by key; of one in transit, those that it goes
// to. The caller must not change them.
func (m *Map) Rules() []Rule {
	if m.rules == nil {
		return nil
	}
	return m.rules.sorted
}

// slot is where a rule puts a key.
func (rs *rules) slot(key []byte) (int, bool) {
	if !rs.tops.Has(key) && !rs.root {
		return 0, false
	}
	if s, ok := rs.slots[string(key)]; ok {
		return int(s), true
	}
	return rs.above(key)
}

// above is the slot of all keys that begin with prefix, unless a deeper rule is
// for them.
func (rs *rules) above(prefix []byte) (int, bool) {
	// No further than a rule's key can reach: a key of a million slashes would
	// otherwise be hashed a million times.
	for n := min(len(prefix), rs.longest); ; n-- {
		if n = bytes.LastIndexByte(prefix[:n], '/') + 1; n == 0 {
			return 0, false
		}
		if s, ok := rs.slots[string(prefix[:n])]; ok {
			return int(s), true
		}
	}
}

// between are the rules that reach into [key, end) without holding all of it:
// those whose own key lies there, and those that begin before the range and hold
// its first keys. All keys of the range begin with prefix.
func (rs *rules) between(key, end, prefix []byte) []Rule {
	from, _ := rs.search(key)
	to, _ := rs.search(end)
	inside := rs.sorted[from:to:to]
	for n := len(prefix) + 1; n < min(len(key), rs.longest+1); n++ {
		if key[n-1] != '/' {
			continue
		}
		if s, ok := rs.slots[string(key[:n])]; ok {
			inside = append(inside, Rule{string(key[:n]), int(s)})
		}
	}
	return inside
}

// search is the place of the first rule at or above key.
func (rs *rules) search(key []byte) (int, bool) {
	return slices.BinarySearchFunc(rs.sorted, key, func(r Rule, k []byte) int { return strings.Compare(r.Key, string(k)) })
}

// spread is the set of partitions of the keys in [key, end), more than one, of
// a map with rules. All of them begin with prefix.
func (m *Map) spread(key, end, prefix []byte) Set {
	set := m.All()
	if s, ok := m.rules.above(prefix); ok {
		set = Of(int(m.slots[s]))
	} else if _, deep := levels(prefix); deep > 0 {
		set = Of(int(m.slots[m.HashSlot(prefix)]))
	}
	if set == m.All() {
		return set
	}
	for _, r := range m.rules.between(key, end, prefix) {
		set |= Of(int(m.slots[r.Slot]))
	}
	return set
}
