package store

import (
	"slices"
	"sort"
)

// Move brings the keys of [key, end), an end of "\x00" being no bound, to the stores in which route says that they
// belong, with all of their history, and returns how many it moved. The caller
// holds the locks of all stores; what they hold is the same state before and
// after. The time that it takes depends on the keys in the range, not on how many
// others there are, nor on how often they have changed.
func Move(stores []*Store, key, end []byte, route func(key []byte) int) int {
	moved := 0
	for p, s := range stores {
		leaving := make([][]*entry, len(stores))
		for _, all := range [...]*ordered{&s.live, &s.graves} {
			all.ascend(all.seek(key), all.below(end), func(e *entry) bool {
				if to := route(e.key()); to != p {
					leaving[to] = append(leaving[to], e)
				}
				return true
			})
		}
		for to, list := range leaving {
			if len(list) > 0 {
				stores[to].adopt(s, list)
				moved += len(list)
			}
		}
	}
	return moved
}

// adopt takes keys over from another store.
func (s *Store) adopt(from *Store, list []*entry) {
	s.rev = max(s.rev, from.rev)
	s.lastDelete = max(s.lastDelete, from.lastDelete)
	s.arrivals.through = s.rev
	from.departed = from.rev
	s.sweep.inherit(&from.sweep)
	recent := from.firstRecent()
	for _, e := range list {
		s.arrivals.fresh = from.appendRecent(s.arrivals.fresh, e, recent)
		from.dismiss(e)
		s.install(e)
	}
	slices.SortFunc(s.arrivals.fresh, compareChanges)
	s.sweep.merge()
}

// dismiss takes a key out of everything but the change log, which the next cut
// writes to History as if nothing had happened.
func (s *Store) dismiss(e *entry) {
	s.keys.remove(e)
	if cur := e.current(); cur.Exists() {
		s.live.remove(e)
		s.reattach(e, cur.Lease(), 0)
	} else {
		s.graves.remove(e)
	}
	if e.past != nil {
		s.sweep.leave(e)
	}
}

// install puts a key in. What this store's compactions have killed of others is
// dead of this one too.
func (s *Store) install(e *entry) {
	if e.past != nil {
		var gone bool
		if s.sweep.dead, gone = e.compact(s.sweep.target, s.sweep.dead); gone {
			return
		}
		if e.past != nil {
			s.sweep.age(e)
		}
	}
	s.keys.add(e)
	if cur := e.current(); cur.Exists() {
		s.live.add(e)
		s.reattach(e, 0, cur.Lease())
	} else {
		s.graves.add(e)
	}
}

// arrivals are changes of keys that have moved here which History may not have
// yet. They stand in the logs of the stores that the keys come from, and get into
// the file from there; until a cut that was made after the move has been released
// they are also kept here, for readers.
type arrivals struct {
	fresh   []Change // ascending, like cut
	cut     []Change // those that the pending cut makes durable
	through int64    // changes of keys before their arrival are at or below it
}

func compareChanges(a, b Change) int { return a.Compare(b.Revision) }

func (a *arrivals) takeCut() {
	a.cut = append(a.cut, a.fresh...)
	slices.SortFunc(a.cut, compareChanges)
	a.fresh = nil
}

func (a *arrivals) change(rev Revision) *Change {
	for _, list := range [...][]Change{a.fresh, a.cut} {
		i := sort.Search(len(list), func(i int) bool { return !list[i].Less(rev) })
		if i < len(list) && list[i].Revision == rev {
			return &list[i]
		}
	}
	return nil
}

// change finds a change of one of the store's keys in memory.
func (s *Store) change(rev Revision) *Change {
	if c := s.log.change(rev); c != nil {
		return c
	}
	return s.arrivals.change(rev)
}

// firstRecent is the oldest revision that may be in memory alone.
func (s *Store) firstRecent() Revision {
	first := Revision{s.rev + 1, 0}
	if chunks, skip := s.log.since(s.sweep.flushed); len(chunks) > 0 && skip < chunks[0].n {
		first = chunks[0].items[skip].Revision
	}
	for _, list := range [...][]Change{s.arrivals.fresh, s.arrivals.cut} {
		if len(list) > 0 && list[0].Less(first) {
			first = list[0].Revision
		}
	}
	return first
}

// appendRecent appends the changes of an entry from a revision on.
func (s *Store) appendRecent(to []Change, e *entry, from Revision) []Change {
	if e.past != nil {
		ms := e.past.marks
		for i := sort.Search(len(ms), func(i int) bool { return !ms[i].rev().Less(from) }); i < len(ms); i++ {
			if c := s.change(ms[i].rev()); c != nil {
				to = append(to, *c)
			}
		}
	}
	if cur := e.current(); cur.Exists() {
		if rev := (Revision{cur.ModRevision(), int64(e.sub)}); !rev.Less(from) {
			if c := s.change(rev); c != nil {
				to = append(to, *c)
			}
		}
	}
	return to
}

// has tells whether a change is of a key that is here.
func (s *Store) has(c *Change) bool {
	e := s.keys.get(c.Kv.Key())
	if e == nil {
		return false
	}
	_, ok := e.find(c.Revision)
	return ok
}

// A key may have dead revisions in the lists of the store that it leaves. They
// must be gone from the file before its tombstone is (invariant 5), which from now
// on this store will find; so it takes those lists over. That both remove the same
// revisions does no harm.
func (w *sweep) inherit(from *sweep) {
	if len(from.dead)+len(from.found) > 0 {
		w.dead = append(append(w.dead, from.dead...), from.found...)
	}
	w.handed = min(w.handed, from.handed)
}

// merge puts in order what a move has added.
func (w *sweep) merge() {
	slices.SortFunc(w.dead, compareDead)
	w.dead = slices.CompactFunc(w.dead, func(a, b Dead) bool { return a == b })
}

// age queues a key that has a past now.
func (w *sweep) age(e *entry) {
	if _, queued := w.stale[e]; queued {
		delete(w.stale, e)
		return
	}
	w.aged.push(e)
}

// leave notes that a queued key has gone to another store.
func (w *sweep) leave(e *entry) {
	if w.stale == nil {
		w.stale = map[*entry]struct{}{}
	}
	w.stale[e] = struct{}{}
}
