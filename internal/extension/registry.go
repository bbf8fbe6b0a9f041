package extension

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Registry is all extensions of a cluster. Immutable; nil is an empty one.
type Registry struct {
	Limits Limits

	list     []*Extension // in the order of their registration
	byName   map[string]*Extension
	ops      [ops]index
	events   [eventTypes]index
	anyEvent index // of whatever type
	reach    map[*Extension][]*Extension
	patterns placement.Filter // of all subscriptions
}

// index finds the extensions whose patterns cover a key: by the key itself and by
// each of its directories, so that the number of extensions doesn't matter.
type index map[string][]*Extension

// New returns a registry of the given extensions.
func New(l Limits, list []*Extension) *Registry {
	r := &Registry{Limits: l, list: slices.Clone(list), byName: map[string]*Extension{}, reach: map[*Extension][]*Extension{}}
	slices.SortFunc(r.list, func(a, b *Extension) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	for _, e := range r.list {
		r.byName[e.Name] = e
		for _, s := range e.Operations {
			r.ops[s.Op].add(s.Pattern, e)
			r.patterns.Add([]byte(s.Pattern))
		}
		for _, s := range e.Events {
			r.events[s.Type].add(s.Pattern, e)
			r.anyEvent.add(s.Pattern, e)
			r.patterns.Add([]byte(s.Pattern))
		}
	}
	for _, e := range r.list {
		r.reach[e] = r.follow(e)
	}
	return r
}

// follow collects the extensions whose events a call of e can lead to, e first.
func (r *Registry) follow(e *Extension) []*Extension {
	reached := []*Extension{e}
	for i := 0; i < len(reached); i++ {
		for _, p := range reached[i].Scope {
			for _, f := range r.EventsIn(p.Bounds()) {
				if !slices.Contains(reached, f) {
					reached = append(reached, f)
				}
			}
		}
	}
	return reached
}

// Reach returns the extensions whose events a call of e can lead to, e first.
func (r *Registry) Reach(e *Extension) []*Extension { return r.reach[e] }

// Version is the revision of the latest registration among those that are there.
func (r *Registry) Version() int64 {
	if r == nil || len(r.list) == 0 {
		return 0
	}
	return r.list[len(r.list)-1].Order
}

// Handles tells whether any extension subscribes to an operation.
func (r *Registry) Handles(op Op) bool { return r != nil && len(r.ops[op]) > 0 }

// HasEvents tells whether any extension subscribes to any change.
func (r *Registry) HasEvents() bool { return r != nil && len(r.anyEvent) > 0 }

func (x *index) add(p Pattern, e *Extension) {
	if *x == nil {
		*x = index{}
	}
	if at := (*x)[string(p)]; len(at) == 0 || at[len(at)-1] != e {
		(*x)[string(p)] = append(at, e)
	}
}

// All returns the extensions in the order of their registration.
func (r *Registry) All() []*Extension {
	if r == nil {
		return nil
	}
	return r.list
}

// Get returns an extension, or nil.
func (r *Registry) Get(name string) *Extension {
	if r == nil {
		return nil
	}
	return r.byName[name]
}

// Concerns tells whether an extension may have to do with a key, or the extension
// manager has; false is certain.
func (r *Registry) Concerns(key []byte) bool {
	return bytes.HasPrefix(key, []byte(Root)) || r != nil && r.patterns.Has(key)
}

// Operation returns the extensions that subscribe to a request, the last
// registered first. end is the request's range end: a range matches a prefix that
// holds all of it.
func (r *Registry) Operation(op Op, key, end []byte) []*Extension {
	if r == nil || len(r.ops[op]) == 0 {
		return nil
	}
	list := r.ops[op].find(key)
	if len(end) > 0 && len(list) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(e *Extension) bool { return !e.handlesRange(op, key, end) })
	}
	return list
}

// Events returns the extensions that subscribe to a change of a key, the first
// registered first.
func (r *Registry) Events(t EventType, key []byte) []*Extension {
	if r == nil || len(r.events[t]) == 0 {
		return nil
	}
	list := r.events[t].find(key)
	if len(list) > 1 {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	return list
}

// EventsIn returns the extensions that subscribe to any change of any key in a
// range, in no particular order.
func (r *Registry) EventsIn(key, end []byte) []*Extension {
	if !r.HasEvents() {
		return nil
	}
	if len(end) == 0 {
		return r.anyEvent.find(key)
	}
	var list []*Extension
	for _, e := range r.list {
		for _, s := range e.Events {
			if s.Pattern.meets(key, end) {
				list = append(list, e)
				break
			}
		}
	}
	return list
}

// find returns who is registered for a key, the last registered first. A single
// hit is not copied.
func (x index) find(key []byte) []*Extension {
	hit := x[string(key)]
	copied := false
	for i, c := range key[:min(len(key), maxPattern)] {
		if c != '/' {
			continue
		}
		more := x[string(key[:i+1])]
		switch {
		case len(more) == 0 || i+1 == len(key):
		case len(hit) == 0:
			hit = more
		default:
			if !copied {
				hit, copied = slices.Clone(hit), true
			}
			for _, e := range more {
				if !slices.Contains(hit, e) {
					hit = append(hit, e)
				}
			}
		}
	}
	if len(hit) > 1 {
		if !copied {
			hit = slices.Clone(hit)
		}
		slices.SortFunc(hit, func(a, b *Extension) int {
			return cmp.Or(cmp.Compare(b.Order, a.Order), strings.Compare(b.Name, a.Name))
		})
	}
	return hit
}

// meets tells whether a pattern covers any key of a range that isn't a point.
func (p Pattern) meets(key, end []byte) bool {
	open := len(end) == 1 && end[0] == 0
	if !p.IsPrefix() {
		return string(p) >= string(key) && (open || string(p) < string(end))
	}
	_, after := p.Bounds()
	return string(after) > string(key) && (open || string(p) < string(end))
}

// holds tells whether a pattern covers every key of a range.
func (p Pattern) holds(key, end []byte) bool {
	if len(end) == 0 {
		return p.Covers(string(key))
	}
	if !p.IsPrefix() || len(end) == 1 && end[0] == 0 {
		return false
	}
	_, after := p.Bounds()
	return string(key) >= string(p) && string(end) <= string(after)
}
