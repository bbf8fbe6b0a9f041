package extension

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/stoa-kv/stoa/internal/radix"
)

// Registry is all extensions of a cluster. Immutable; nil is an empty one. Registries
// that follow on one another share all but their difference, so a change takes as long
// as the extension is large, however many there are.
type Registry struct {
	Limits Limits

	byName  radix.Tree[*Extension]
	byOrder radix.Tree[*Extension]
	ops     [ops]index
	strict  index // of the operations of strict extensions
	events  [eventTypes]index
	// Of all types of events, of all subscriptions, and of the keys that need a rule of
	// their own to be placed by: scopes and homes.
	anyEvent, patterns, places index

	memory int64 // that all of them keep
}

// New returns a registry of the given extensions.
func New(l Limits, list []*Extension) *Registry {
	r := &Registry{Limits: l}
	for _, e := range list {
		r = r.With(e)
	}
	return r
}

// Limited is the registry with other limits.
func (r *Registry) Limited(l Limits) *Registry {
	next := *r
	next.Limits = l
	return &next
}

// With is the registry with an extension, instead of one of the same name.
func (r *Registry) With(e *Extension) *Registry {
	next := *r
	if old := r.Get(e.Name); old != nil {
		next = *r.Without(e.Name)
	}
	next.byName = next.byName.With(e.Name, e)
	next.byOrder = next.byOrder.With(e.place(), e)
	next.memory += e.Memory
	next.each(e, func(x *index, p Pattern) { x.add(p, e) })
	return &next
}

// Without is the registry without an extension.
func (r *Registry) Without(name string) *Registry {
	e := r.Get(name)
	if e == nil {
		return r
	}
	next := *r
	next.byName = next.byName.Without(name)
	next.byOrder = next.byOrder.Without(e.place())
	next.memory -= e.Memory
	next.each(e, func(x *index, p Pattern) { x.remove(p, e) })
	return &next
}

// each visits the entries of an extension in the indexes.
func (r *Registry) each(e *Extension, visit func(*index, Pattern)) {
	for _, s := range e.Operations {
		visit(&r.ops[s.Op], s.Pattern)
		if e.Strict {
			visit(&r.strict, s.Pattern)
		}
		visit(&r.patterns, s.Pattern)
	}
	for _, s := range e.Events {
		visit(&r.events[s.Type], s.Pattern)
		visit(&r.anyEvent, s.Pattern)
		visit(&r.patterns, s.Pattern)
	}
	visit(&r.places, Pattern(Home(e.Name)))
	for _, p := range e.Scope {
		visit(&r.places, p)
	}
}

// place is the key of an extension among all in the order of their registration.
func (e *Extension) place() string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(e.Order))) + e.Name
}

// Version is the revision of the latest registration among those that are there.
func (r *Registry) Version() int64 {
	if r == nil {
		return 0
	}
	if e, ok := r.byOrder.Last(); ok {
		return e.Order
	}
	return 0
}

// Len is the number of extensions.
func (r *Registry) Len() int {
	if r == nil {
		return 0
	}
	return r.byName.Len()
}

// Handles tells whether any extension subscribes to an operation.
func (r *Registry) Handles(op Op) bool { return r != nil && r.ops[op].Len() > 0 }

// HasEvents tells whether any extension subscribes to any change.
func (r *Registry) HasEvents() bool { return r != nil && r.anyEvent.Len() > 0 }

// All returns the extensions in the order of their registration.
func (r *Registry) All() []*Extension {
	if r.Len() == 0 {
		return nil
	}
	list := make([]*Extension, 0, r.Len())
	for _, e := range r.byOrder.All() {
		list = append(list, e)
	}
	return list
}

// Get returns an extension, or nil.
func (r *Registry) Get(name string) *Extension {
	if r == nil {
		return nil
	}
	e, _ := r.byName.Get([]byte(name))
	return e
}

// NamedLike yields the extensions whose names a text begins with.
func (r *Registry) NamedLike(text []byte) func(yield func(*Extension) bool) {
	return func(yield func(*Extension) bool) {
		if r == nil {
			return
		}
		for _, e := range r.byName.Above(text) {
			if !yield(e) {
				return
			}
		}
	}
}

// Concerns tells whether an extension or the extension manager handles a key.
func (r *Registry) Concerns(key []byte) bool {
	return bytes.HasPrefix(key, []byte(Root)) || r != nil && r.patterns.covers(key)
}

// Operation returns the extensions that subscribe to a request, the last
// registered first. end is the request's range end: a range matches a prefix that
// holds all of it. The list is not to be written to.
func (r *Registry) Operation(op Op, key, end []byte) []*Extension {
	if r == nil {
		return nil
	}
	return r.ops[op].find(key, end)
}

// HasStrict tells whether any extension is strict.
func (r *Registry) HasStrict() bool { return r != nil && r.strict.Len() > 0 }

// Strict returns the strict extensions an operation of which, whichever it is, names a
// key, or all keys of a range, the last registered first. The list is not to be written
// to.
func (r *Registry) Strict(key, end []byte) []*Extension {
	if r == nil {
		return nil
	}
	return r.strict.find(key, end)
}

// Events returns the extensions that subscribe to a change of a key, the first
// registered first.
func (r *Registry) Events(t EventType, key []byte) []*Extension {
	if r == nil {
		return nil
	}
	found := r.events[t].find(key, nil)
	if len(found) < 2 {
		return found
	}
	list := make([]*Extension, len(found))
	for i, e := range found {
		list[len(found)-1-i] = e
	}
	return list
}

// EventsIn yields the extensions that subscribe to any change of any key in a range,
// in no particular order, some of them more than once.
func (r *Registry) EventsIn(key, end []byte) func(yield func(*Extension) bool) {
	return func(yield func(*Extension) bool) {
		if !r.HasEvents() {
			return
		}
		r.anyEvent.meeting(key, end, yield)
	}
}

// DeletionsIn yields the extensions that an explicit deletion of any key of a range may wake.
func (r *Registry) DeletionsIn(key, end []byte) func(yield func(*Extension) bool) {
	return func(yield func(*Extension) bool) {
		if r.HasEvents() {
			r.events[Deleted].meeting(key, end, yield)
		}
	}
}

// WakenByDeletion reports whether there are any of [Registry.DeletionsIn].
func (r *Registry) WakenByDeletion(key, end []byte) bool {
	for range r.DeletionsIn(key, end) {
		return true
	}
	return false
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

// earlier tells whether e was registered before o.
func (e *Extension) earlier(o *Extension) bool {
	return e.Order < o.Order || e.Order == o.Order && strings.Compare(e.Name, o.Name) < 0
}
