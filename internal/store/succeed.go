package store

import "slices"

// Beside returns an empty store of a partition that comes to others, of which s is one, at their
// revision and compaction. Locks of both: the caller's affair.
func (s *Store) Beside(index, term uint64, rev int64) *Store {
	n := New(s.history)
	// Nothing is dead in an empty store, so each compaction is finished in it.
	n.Restore(index, term, rev, s.compacted, s.compacted)
	n.bounds = s.bounds
	return n
}

// Absorb takes over what is left of a store whose partition goes, and whose keys have all moved to
// others; all its changes are in History. The others are all stores that stay. Their locks are held.
func (s *Store) Absorb(gone *Store, others []*Store) {
	w, from := &s.sweep, &gone.sweep
	found := slices.Clone(from.found)
	slices.SortFunc(found, compareDead)
	for _, dead := range [...][]Dead{from.dead, from.late, found} {
		w.late = mergeInto(w.late, dead, compareDead)
	}
	// What it had still to hand over, this store has now: so others wait for this one instead.
	for _, o := range others {
		if i := slices.Index(o.sweep.inherited, from); i >= 0 {
			o.sweep.inherited = slices.Delete(o.sweep.inherited, i, i+1)
			if o != s {
				o.sweep.follow(w)
			}
		}
	}
	for _, o := range from.inherited {
		w.inherit(o)
	}
	w.handed = min(w.handed, from.handed)
	w.reported = min(w.reported, from.reported)
	s.sums.Add(&gone.sums)
	s.windows = Windows{}
	s.rev = max(s.rev, gone.rev)
	s.lastDelete = max(s.lastDelete, gone.lastDelete)
}
