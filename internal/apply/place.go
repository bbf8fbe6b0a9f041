package apply

import (
	"cmp"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// Placement is the map by which keys are placed now. It is replaced at a
// rendezvous of all partitions, so whoever holds the lock of any store sees the
// one that is true; whoever holds none must be ready for fault.Moved.
func (m *Machine) Placement() *placement.Map { return m.placed.Load() }

// place replaces the map, and brings the keys that it concerns to where it says,
// with all of their history. Only a command that runs in all partitions may call
// it, no other has any effect. It may do so before its writes, between or after
// them: they are all published in the partitions in which their keys are when that
// happens.
func (x *execution) place(next *placement.Map) {
	m := x.m
	old := m.Placement()
	if x.covers(next.All()) != nil || next.Equal(old) {
		return
	}
	for _, span := range placement.Difference(old, next) {
		store.Move(m.Stores, span.Key, span.End, next.Partition)
	}
	m.placed.Store(next)
	x.mergeSessions()
	through := x.before()
	if pending := x.rehome(next); x.sub > 0 && !pending {
		through = x.rev // all that it does has been published
	}
	if o := m.Observer; o != nil {
		o.Moved(through, next)
	}
}

// rehome puts what the command has changed, and not yet published, where the keys
// are now. It tells whether there is any.
func (x *execution) rehome(next *placement.Map) bool {
	if x.local != several {
		return x.from < len(x.changes)
	}
	all := slices.Concat(x.spread...)
	slices.SortFunc(all, func(a, b store.Change) int { return cmp.Compare(a.Sub, b.Sub) })
	clear(x.spread)
	for _, c := range all {
		p := next.Partition(c.Kv.Key())
		x.spread[p] = append(x.spread[p], c)
	}
	return len(all) > 0
}
