package extension

import (
	"cmp"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Rules brings the keys of each extension together: every pattern of its scope,
// and its own keys under /em/, into one slot (design §2). Where scopes of several
// extensions overlap, they share a slot if they can; what an earlier one has
// settled stays as it is. The rules are a function of the registered extensions,
// in the order of their registration.
func (r *Registry) Rules(slot func(key []byte) int) []placement.Rule {
	var rules []placement.Rule
	for _, e := range r.All() {
		home := string(Home(e.Name))
		target, found := settled(rules, e.Scope)
		if !found {
			target = slot([]byte(home))
		}
		rules = append(rules, placement.Rule{Key: home, Slot: target})
		for _, p := range e.Scope {
			if _, ok := covering(rules, p); !ok {
				rules = append(rules, placement.Rule{Key: string(p), Slot: target})
			}
		}
	}
	slices.SortFunc(rules, func(a, b placement.Rule) int { return cmp.Compare(a.Key, b.Key) })
	return rules
}

// settled is the slot in which earlier rules hold a part of a scope.
func settled(rules []placement.Rule, scope []Pattern) (slot int, ok bool) {
	for _, p := range scope {
		if slot, ok = covering(rules, p); ok {
			return slot, true
		}
	}
	for _, p := range scope {
		for _, r := range rules {
			if p.Covers(r.Key) {
				return r.Slot, true
			}
		}
	}
	return 0, false
}

// covering is the narrowest rule for all of a pattern's keys.
func covering(rules []placement.Rule, p Pattern) (slot int, ok bool) {
	width := -1
	for _, r := range rules {
		if Pattern(r.Key).Covers(string(p)) && len(r.Key) > width {
			slot, width, ok = r.Slot, len(r.Key), true
		}
	}
	return slot, ok
}
