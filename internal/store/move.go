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
		leaving := make([][]named, len(stores))
		note := func(name string, e *entry) bool {
			if to := route([]byte(name)); to != p {
				leaving[to] = append(leaving[to], named{name, e})
			}
			return true
		}
		s.ascend(key, end, note)
		s.graves.Ascend(view(key), func(name string, e *entry) bool { return before(name, end) && note(name, e) })
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
func (s *Store) adopt(from *Store, list []named) {
	s.rev = max(s.rev, from.rev)
	s.lastDelete = max(s.lastDelete, from.lastDelete)
	s.arrivals.through = s.rev
	from.departed = from.rev
	s.sweep.inherit(&from.sweep)
	recent := from.firstRecent()
	for _, n := range list {
		s.arrivals.fresh = from.appendRecent(s.arrivals.fresh, n.entry, recent)
		from.dismiss(n)
		s.install(n)
	}
	slices.SortFunc(s.arrivals.fresh, compareChanges)
	s.sweep.merge()
}

// dismiss takes a key out of everything but the change log, which the next cut
// writes to History as if nothing had happened.
func (s *Store) dismiss(n named) {
	delete(s.keys, n.name)
	if n.entry.cur != nil {
		s.live.Delete(n.name)
		s.reattach(n.entry.cur.Key, n.entry.cur, 0)
	} else {
		s.graves.Delete(n.name)
	}
	if n.entry.past != nil {
		s.sweep.leave(n.name)
	}
}

// install puts a key in. What this store's compactions have killed of others is
// dead of this one too.
func (s *Store) install(n named) {
	e := n.entry
	if e.past != nil {
		var gone bool
		if s.sweep.dead, gone = e.compact(s.sweep.target, s.sweep.dead); gone {
			return
		}
		if e.past != nil {
			s.sweep.age(n.name)
		}
	}
	s.keys[n.name] = e
	if e.cur != nil {
		s.live.Set(n.name, e)
		s.reattach(e.cur.Key, nil, e.cur.Lease)
	} else {
		s.graves.Set(n.name, e)
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

func compareChanges(a, b Change) int { return a.Rev().Compare(b.Rev()) }

func (a *arrivals) takeCut() {
	a.cut = append(a.cut, a.fresh...)
	slices.SortFunc(a.cut, compareChanges)
	a.fresh = nil
}

func (a *arrivals) change(rev Revision) *Change {
	for _, list := range [...][]Change{a.fresh, a.cut} {
		i := sort.Search(len(list), func(i int) bool { return !list[i].Rev().Less(rev) })
		if i < len(list) && list[i].Rev() == rev {
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
		first = chunks[0].items[skip].Rev()
	}
	for _, list := range [...][]Change{s.arrivals.fresh, s.arrivals.cut} {
		if len(list) > 0 && list[0].Rev().Less(first) {
			first = list[0].Rev()
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
	if e.cur != nil && !(Revision{e.cur.ModRevision, int64(e.sub)}).Less(from) {
		if c := s.change(Revision{e.cur.ModRevision, int64(e.sub)}); c != nil {
			to = append(to, *c)
		}
	}
	return to
}

// has tells whether a change is of a key that is here.
func (s *Store) has(c *Change) bool {
	e := s.keys[view(c.Kv.Key)]
	if e == nil {
		return false
	}
	_, ok := e.find(c.Rev())
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
func (w *sweep) age(name string) {
	if _, queued := w.stale[name]; queued {
		delete(w.stale, name)
		return
	}
	w.aged.push(name)
}

// leave notes that a queued key has gone to another store.
func (w *sweep) leave(name string) {
	if w.stale == nil {
		w.stale = map[string]struct{}{}
	}
	w.stale[name] = struct{}{}
}
