package extension

import (
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/radix"
)

// Ruled are the keys that a map has rules for.
type Ruled struct{ keys index }

// RuledBy reads them from a map.
func RuledBy(m *placement.Map) Ruled {
	var r Ruled
	for rule := range m.EachRule() {
		r.keys.Tree = r.keys.With(rule.Key, nil)
	}
	return r
}

// Place is the map whose rules bring the keys of each extension together: every pattern
// of its scope, and its own keys under /em/, in one slot (design §2). Each of these has
// a rule for as long as an extension asks for it, and existing rules stay as they are: a
// pattern goes to where a rule for a wider one puts it, if there is any, and an
// extension to where rules put the first part of its scope. So the map follows from the
// one before and from the registrations and removals in between, and takes time in
// proportion to these. The rules of pins stay, too.
func (r *Registry) Place(now *placement.Map, ruled Ruled) (*placement.Map, Ruled) {
	var gone []string
	added := map[*Extension]bool{}
	for key := range radix.Diff(ruled.keys.Tree, r.places.Tree) {
		holders, wanted := r.places.Get([]byte(key))
		_, there := now.RuleFor(key)
		switch {
		case wanted && !there:
			added[holders[len(holders)-1]] = true // the first that asks for it
		case !wanted && there && !now.Pinned(key):
			gone = append(gone, key)
		}
	}
	if len(gone) > 0 {
		now = now.Changed(nil, gone)
	}
	for _, e := range inOrder(added) {
		now = now.Changed(e.rules(now), nil)
	}
	return now, Ruled{r.places}
}

func inOrder(set map[*Extension]bool) []*Extension {
	list := make([]*Extension, 0, len(set))
	for e := range set {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Extension) int {
		if a.earlier(b) {
			return -1
		}
		return 1
	})
	return list
}

// Asks tells whether an extension wants a rule with this key.
func (r *Registry) Asks(key string) bool {
	_, ok := r.places.Get([]byte(key))
	return ok
}

// rules are those that a map lacks for an extension.
func (e *Extension) rules(m *placement.Map) (list []placement.Rule) {
	home := string(Home(e.Name))
	slot, ok := m.RuleFor(home)
	if !ok {
		if slot, ok = e.ruledSlot(m); !ok {
			slot = placement.HashSlot([]byte(home))
		}
		list = append(list, placement.Rule{Key: home, Slot: slot})
	}
	for _, p := range e.Scope {
		if _, ok := m.RuleFor(string(p)); ok {
			continue
		}
		at, ok := m.RuleOver(string(p))
		if !ok {
			at = slot
		}
		list = append(list, placement.Rule{Key: string(p), Slot: at})
	}
	return list
}

// ruledSlot is the slot in which rules hold a part of the scope.
func (e *Extension) ruledSlot(m *placement.Map) (slot int, ok bool) {
	for _, p := range e.Scope {
		if slot, ok = m.RuleOver(string(p)); ok {
			return slot, true
		}
	}
	for _, p := range e.Scope {
		if !p.IsPrefix() {
			continue
		}
		if slot, ok = m.RuleUnder(string(p)); ok {
			return slot, true
		}
	}
	return 0, false
}
