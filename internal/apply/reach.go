package apply

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/placement"
)

// reaches caches the results of reach for one registry and one map. They are a function
// of the two, so replicas may have different extensions in the cache.
type reaches struct {
	reg   *extension.Registry
	place *placement.Map
	of    sync.Map // *extension.Extension to placement.Set
}

// reach is every partition that a call of an extension can touch: its home, its
// scope, and those of the extensions that may react to its writes; while a transit
// lasts, wherever these may be.
func (m *Machine) reach(e *extension.Extension) placement.Set {
	place := m.Placement()
	if place.Partitions() == 1 {
		return placement.Of(0)
	}
	reg := m.Extensions()
	r := m.reaches.Load()
	if r == nil || r.reg != reg || r.place != place {
		r = &reaches{reg: reg, place: place}
		m.reaches.Store(r)
	}
	if found, ok := r.of.Load(e); ok {
		return found.(placement.Set)
	}
	parts := reachIn(reg, place, e)
	r.of.Store(e, parts)
	return parts
}

func reachIn(reg *extension.Registry, place *placement.Map, e *extension.Extension) placement.Set {
	reach := reg.Reach(e)
	if reach.Whole {
		return place.All()
	}
	var parts placement.Set
	for _, f := range reach.Extensions {
		parts |= where(place, f.OwnerKey(), true)
	}
	for _, p := range reach.Scope {
		parts |= place.Wide(p.Bounds())
	}
	return parts
}

// reactions is every partition that the events of changes in a range can touch.
func (m *Machine) reactions(key, end []byte) (parts placement.Set) {
	all := m.Placement().All()
	looked := 0
	for e := range m.Extensions().EventsIn(key, end) {
		if looked++; looked > maxReactions {
			return all // as with an extension's reach: no further than this
		}
		if parts |= m.reach(e); parts == all {
			return all
		}
	}
	return parts
}

// maxReactions bounds the time that it takes to find out where a write has to go.
const maxReactions = 64
