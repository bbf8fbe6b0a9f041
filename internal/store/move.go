package store

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Route tells where keys belong.
type Route struct {
	// To is the store of a key, and how far the keys behind it belong there, too: all up to
	// end, without it, or the key alone if end is nil.
	To func(key []byte) (to int, end []byte)
	// Still, if not nil, has the slots by hash whose keys belong where they are; To isn't
	// asked of them.
	Still *[placement.Slots]bool
	// Among, if not 0, are the stores between which keys move: all other stores keep theirs,
	// and aren't touched.
	Among placement.Set
}

// among yields the stores that the route concerns.
func (r *Route) among(stores []*Store) iter.Seq2[int, *Store] {
	return func(yield func(int, *Store) bool) {
		for p, s := range stores {
			if (r.Among == 0 || r.Among.Has(p)) && !yield(p, s) {
				return
			}
		}
	}
}

// Moved is told of a key that exists and goes to another store, and of the bytes of the key
// with its value, which are good until it returns.
type Moved func(from, to int, key []byte, bytes int)

// Move brings the keys of [key, end), an end of "\x00" being no bound, to the stores
// to which route assigns them, with all of their history, and returns how many it
// moved. The caller holds the locks of all stores concerned; together they hold the same state
// before and after. The time that it takes depends on the keys that move and
// on their history, and on how often route has to be asked; a nanosecond or two for each of the
// others that are still is all that they cost. See Piece. each may be nil.
func Move(stores []*Store, key, end []byte, route Route, each Moved) int {
	moved := 0
	leaving := make([][]*entry, len(stores))
	for p, s := range route.among(stores) {
		for _, all := range [...]*ordered{&s.live, &s.tombstones} {
			all.leave(p, key, end, route, func(e *entry, to int) bool {
				if to != p {
					leaving[to] = append(leaving[to], e)
				}
				return true
			})
		}
		for to, list := range leaving {
			if len(list) == 0 {
				continue
			}
			for _, e := range list {
				if kv := e.current(); each != nil && kv.Exists() {
					each(p, to, kv.Key(), len(kv.Key())+len(kv.Value()))
				}
			}
			stores[to].adopt(s, list)
			moved += len(list)
			leaving[to] = nil
		}
	}
	return moved
}

// leave visits the entries of [key, end) that leave store p, and of each run of those that
// stay the first one, until visit returns false.
func (o *ordered) leave(p int, key, end []byte, route Route, visit func(e *entry, to int) bool) {
	stop := o.below(end)
	for at := o.seek(key); at.less(stop); {
		e := o.at(at)
		if next := o.pass(at, stop, route.Still); next != at {
			if !visit(e, p) {
				return
			}
			at = next
			continue
		}
		to, until := route.To(e.key())
		if !visit(e, to) {
			return
		}
		at = o.next(at)
		if to == p {
			if until != nil && at.less(stop) && view(o.at(at).key()) < view(until) {
				at = o.seek(until)
			}
			continue
		}
		for ; until != nil && at.less(stop) && view(o.at(at).key()) < view(until); at = o.next(at) {
			if !visit(o.at(at), to) {
				return
			}
		}
	}
}

// passed is the most entries that are passed over at once: they take about as long as one of
// which route has to be asked.
const passed = 256

// pass passes over entries whose slots are still, but not beyond a leaf.
func (o *ordered) pass(at, stop place, still *[placement.Slots]bool) place {
	if still == nil {
		return at
	}
	slots := o.leaves[at.leaf].slots
	if at.leaf == stop.leaf {
		slots = slots[:stop.at]
	}
	slots = slots[:min(len(slots), at.at+passed)]
	i := at.at
	for i < len(slots) && still[slots[i]%placement.Slots] {
		i++
	}
	return o.place(at.leaf, i)
}

// Budget bounds a piece: the keys that move in it, one with many recent revisions counting as
// several, and how many others are looked at.
type Budget struct{ Keys, Visits int }

// Piece returns a bound such that Move, from key to there, keeps about to a budget. The bound
// is the first key that is not part of the piece. Nil stands for end, and left is the unused
// budget then. It takes the read locks itself, one after the other, so the result is an
// estimate; both parts of the budget are at least 1.
func Piece(stores []*Store, key, end []byte, route Route, budget Budget) (stop []byte, left Budget) {
	type load struct {
		key   []byte
		costs int
	}
	var ahead []load
	looked := len(stores)
	if route.Among != 0 {
		looked = route.Among.Len()
	}
	visits := max(1, budget.Visits/looked)
	for p, s := range route.among(stores) {
		s.RLock()
		visited, recent := 0, s.firstRecent()
		for _, all := range [...]*ordered{&s.live, &s.tombstones} {
			sum, n, stays := 0, 0, 0
			all.leave(p, key, end, route, func(e *entry, to int) bool {
				if to == p {
					if stays >= visits && (stop == nil || view(e.key()) < view(stop)) {
						stop = bytes.Clone(e.key())
					}
					stays++
					return stays <= visits
				}
				costs := s.costs(e, recent)
				ahead = append(ahead, load{e.key(), costs})
				sum, n = sum+costs, n+1
				return sum <= budget.Keys || n == 1 // the first is taken at any cost
			})
			visited += stays
		}
		left.Visits = max(left.Visits, visited)
		s.RUnlock()
	}
	slices.SortFunc(ahead, func(a, b load) int { return bytes.Compare(a.key, b.key) })
	left = Budget{budget.Keys, max(0, budget.Visits-left.Visits*looked)}
	for i, l := range ahead {
		if stop != nil && bytes.Compare(l.key, stop) >= 0 {
			break
		}
		if i > 0 && l.costs > left.Keys {
			return bytes.Clone(l.key), Budget{}
		}
		left.Keys -= l.costs
	}
	left.Keys = max(left.Keys, 0)
	if stop != nil {
		return stop, Budget{}
	}
	return nil, left
}

// costs is the weight of an entry in a Piece. Of its past, what counts are the revisions that
// [Store.adopt] looks at: the recent ones, and those that are dead and not yet found. All others go
// along as they are, however many there are: a key that is written all the time would
// otherwise be the slower to move the longer that has gone on.
func (s *Store) costs(e *entry, recent Revision) int {
	if e.past == nil {
		return 1
	}
	ms := e.past.marks
	dead := sort.Search(len(ms), func(i int) bool { return ms[i].main > s.sweep.target })
	fresh := len(ms) - sort.Search(len(ms), func(i int) bool { return !ms[i].rev().Less(recent) })
	return 1 + min(len(ms), dead+fresh)/marksPerKey
}

// marksPerKey is how many revisions are as much work to move as one more key.
const marksPerKey = 16

// adopt takes keys over from another store.
func (s *Store) adopt(from *Store, list []*entry) {
	s.rev = max(s.rev, from.rev)
	s.lastDelete = max(s.lastDelete, from.lastDelete)
	s.arrivals.through = s.rev
	from.movedThrough = from.rev
	s.sweep.follow(&from.sweep)
	recent := from.firstRecent()
	var fresh []Change
	var dead []Dead
	for _, e := range list {
		fresh = from.appendRecent(fresh, e, recent)
		from.dismiss(e)
		dead = s.install(e, dead)
	}
	slices.SortFunc(fresh, compareChanges)
	s.arrivals.fresh = mergeInto(s.arrivals.fresh, fresh, compareChanges)
	slices.SortFunc(dead, compareDead)
	s.sweep.late = mergeInto(s.sweep.late, dead, compareDead)
}

// mergeInto merges two ascending lists, and reuses the room of the first.
func mergeInto[T any](to, more []T, compare func(a, b T) int) []T {
	i, j := len(to)-1, len(more)-1
	to = append(to, more...)
	for at := len(to) - 1; j >= 0; at-- {
		if i >= 0 && compare(to[i], more[j]) > 0 {
			to[at] = to[i]
			i--
		} else {
			to[at] = more[j]
			j--
		}
	}
	return to
}

// dismiss takes a key out of everything but the change log, which the next cut
// writes to History as if nothing had happened.
func (s *Store) dismiss(e *entry) {
	s.keys.remove(e)
	if cur := e.current(); cur.Exists() {
		s.live.remove(e)
		s.bytes -= int64(cur.Len())
		s.reattach(e, cur.Lease(), 0)
	} else {
		s.tombstones.remove(e)
	}
	if e.past != nil {
		s.sweep.leave(e)
	}
}

// install adds a key. Its revisions that are dead at the target of this store's sweep are
// added to dead, like those of other keys.
func (s *Store) install(e *entry, dead []Dead) []Dead {
	if e.past != nil {
		var gone bool
		if dead, gone = e.compact(s.sweep.target, dead); gone {
			return dead
		}
		if e.past != nil {
			s.sweep.age(e)
		}
	}
	s.keys.add(e)
	if cur := e.current(); cur.Exists() {
		s.live.add(e)
		s.bytes += int64(cur.Len())
		s.reattach(e, 0, cur.Lease())
	} else {
		s.tombstones.add(e)
	}
	return dead
}

// arrivals are changes of keys that have moved here which History may not have
// yet. They are in the logs of the stores that the keys come from, and are flushed
// from there; until a cut that was made after the move has been released
// they are also kept here, for readers.
type arrivals struct {
	fresh   []Change // ascending, like cut
	cut     []Change // those that the pending cut makes durable
	through int64    // changes of keys before their arrival are at or below it
}

func compareChanges(a, b Change) int { return a.Compare(b.Revision) }

func (a *arrivals) takeCut() {
	a.cut, a.fresh = mergeInto(a.cut, a.fresh, compareChanges), nil
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
// on this store will find. So while the other one has dead revisions to hand over, this
// one hands over none that are newer. Nor does it report a compaction as finished beyond
// the other's: keys from there may have brought more dead revisions.
func (w *sweep) follow(from *sweep) {
	w.handed = min(w.handed, from.handed)
	w.inherit(from)
	for _, o := range from.inherited { // a key may have come from there before
		w.inherit(o)
	}
}

func (w *sweep) inherit(from *sweep) {
	if from != w && from.pending() && !slices.Contains(w.inherited, from) {
		w.inherited = append(w.inherited, from)
	}
}

// pending tells whether dead revisions that were found have still to be handed over.
func (w *sweep) pending() bool { return len(w.dead)+len(w.late)+len(w.found) > 0 }

// bound is the revision from which on nothing may be handed over yet, because a
// store that keys have come from must do so first. The locks of all stores are held.
func (w *sweep) bound() (rev Revision, bounded bool) {
	w.inherited = slices.DeleteFunc(w.inherited, func(o *sweep) bool { return !o.pending() })
	rev = Revision{math.MaxInt64, math.MaxInt64}
	for _, o := range w.inherited {
		if len(o.found) > 0 {
			return Revision{}, true // these aren't in order yet
		}
		for _, list := range [...][]Dead{o.dead, o.late} {
			if len(list) > 0 && list[0].Less(rev) {
				rev = list[0].Revision
			}
		}
	}
	return rev, len(w.inherited) > 0
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
