package store

import (
	"fmt"
	"slices"
	"sort"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// scanLimit bounds how long one call holds a read transaction of the file open.
const scanLimit = 100_000

// Bounds end a read of changes early, at the end of the revision that reaches one of them. 0
// is none.
type Bounds struct {
	Changes int // found
	Bytes   int // of values read from the file, which are memory of the caller's own
}

// Changes returns the changes of the keys in [key, end) at revisions from …
// through, ascending, where through <= to is the last revision covered: the caller
// continues at through+1. It stops early where the bounds say, and at the bound on the
// records that one call reads. A revision is never split. Without prev, Prev may be nil
// though there was a value before.
//
// It takes the read lock itself. It fails with fault.Compacted if from is below
// the compaction revision, as etcd's watches do. The changes at exactly that
// revision are still there, but not the values they replaced: Prev is nil there.
func (s *Store) Changes(key, end []byte, from, to int64, bounds Bounds, prev bool) (changes []Change, through int64, err error) {
	s.RLock()
	if from < s.compacted {
		s.RUnlock()
		return nil, 0, fault.Compacted
	}
	w := walk{store: s, key: key, end: end, from: from, to: to, through: to, bounds: bounds, prev: prev}
	// Above it the log has everything; keys that have moved here since haven't
	// brought their past into it.
	floor := max(s.log.floor.Main, s.arrivals.through)
	switch {
	case from > to:
		s.RUnlock()
		return nil, to, nil
	case from > floor:
		w.log()
		s.RUnlock()
		return w.found, w.through, nil
	case len(end) == 0:
		w.index()
		s.RUnlock()
	default:
		w.through = min(to, floor)
		w.memory() // before the file is read: changes removed from memory are in it by then
		s.RUnlock()
		if err := w.scan(); err != nil {
			return nil, 0, err
		}
		s.RLock()
		w.claim()
		s.RUnlock()
	}
	if err := w.resolve(); err != nil {
		return nil, 0, err
	}
	return w.found, w.through, nil
}

// walk is one call of Changes.
type walk struct {
	store             *Store
	key, end          []byte
	from, to, through int64
	bounds            Bounds
	prev              bool

	found []Change
	held  []Change  // found in memory, in addition to those of the file
	kvs   []missing // values and previous values that are still to be fetched
	prevs []missing
	bytes int // of values, by scan, and then by resolve
}

func (w *walk) wants(key []byte) bool {
	if len(w.end) == 0 {
		return view(key) == view(w.key)
	}
	return view(key) >= view(w.key) && before(key, w.end)
}

// full tells whether the walk has to stop before a change at revision main.
func (w *walk) full(main int64) bool {
	n := len(w.found)
	if w.bounds.Changes <= 0 || n < w.bounds.Changes || w.found[n-1].Main == main {
		return false
	}
	w.through = main - 1
	return true
}

// laden tells whether the values read are enough for one call.
func (w *walk) laden() bool { return w.bounds.Bytes > 0 && w.bytes >= w.bounds.Bytes }

// log walks the part of history that is in memory.
func (w *walk) log() {
	l := &w.store.log
	i, j := l.from(Revision{Main: w.from})
	for ; i < len(l.chunks); i, j = i+1, 0 {
		c := l.chunks[i]
		for ; j < c.n; j++ {
			ch := &c.items[j]
			if ch.Main > w.to {
				return
			}
			if !w.wants(ch.Kv.Key()) || ch.Main <= w.store.movedThrough && !w.store.has(ch) {
				continue
			}
			if w.full(ch.Main) {
				return
			}
			w.found = append(w.found, *ch)
			if ch.Main <= w.store.compacted {
				w.found[len(w.found)-1].Prev = kvwire.KeyValue{}
			}
		}
	}
}

// index walks one key's revisions: that beats reading the file for a key.
func (w *walk) index() {
	s := w.store
	e := s.keys.get(w.key)
	if e == nil {
		return
	}
	var ms []mark
	if e.past != nil {
		ms = e.past.marks
	}
	cur := e.current()
	if cur.Exists() {
		ms = append(ms[:len(ms):len(ms)], mark{main: cur.ModRevision(), sub: e.sub})
	}
	i := sort.Search(len(ms), func(i int) bool { return ms[i].main >= w.from })
	for ; i < len(ms); i++ {
		m := ms[i]
		if m.main > w.to || w.full(m.main) {
			return
		}
		if c := s.change(m.rev()); c != nil {
			w.found = append(w.found, *c)
			continue
		}
		c := Change{Revision: m.rev(), Delete: m.tomb}
		switch {
		case m.tomb:
			c.Kv = kvwire.Tombstone(w.key)
		case i == len(ms)-1:
			c.Kv = cur
		default:
			w.kvs = append(w.kvs, missing{len(w.found), m.rev()})
		}
		w.found = append(w.found, c)
		w.previous(e, i, len(w.found)-1)
	}
}

// previous finds, or queues for fetching, the value that the change at place i of
// e's revisions replaced.
func (w *walk) previous(e *entry, i, at int) {
	if !w.prev {
		return
	}
	if w.found[at].Main <= w.store.compacted {
		return
	}
	if rev, ok := e.before(i, w.found[at].Main); ok {
		if c := w.store.change(rev); c != nil {
			w.found[at].Prev = c.Kv
		} else {
			w.prevs = append(w.prevs, missing{at, rev})
		}
	}
}

// memory collects the changes of the walk's range that may not be in the file yet, in no
// order. There are some only after keys have moved here.
func (w *walk) memory() {
	l := &w.store.log
	for i, j := l.from(Revision{Main: w.from}); i < len(l.chunks); i, j = i+1, 0 {
		if c := l.chunks[i]; !w.hold(c.items[j:c.n]) {
			break
		}
	}
	w.hold(w.store.arrivals.fresh)
	w.hold(w.store.arrivals.cut)
}

// hold takes changes from an ascending sequence, and tells whether that ended before
// the walk does.
func (w *walk) hold(changes []Change) bool {
	for i := range changes {
		c := &changes[i]
		if c.Main > w.through {
			return false
		}
		if c.Main >= w.from && w.wants(c.Kv.Key()) {
			w.held = append(w.held, *c)
		}
	}
	return true
}

// scan reads a range's changes of all partitions from the file.
func (w *walk) scan() error {
	last, read := int64(0), 0
	err := w.store.history.Scan(w.from, w.through, func(rev Revision, kv kvwire.KeyValue, tombstone bool) bool {
		if rev.Main != last && (read >= scanLimit || w.laden()) {
			w.through = rev.Main - 1
			return false
		}
		last = rev.Main
		read++
		if !w.wants(kv.Key()) {
			return true
		}
		if w.full(rev.Main) {
			return false
		}
		w.bytes += kv.Len()
		w.found = append(w.found, Change{Revision: rev, Kv: kv.Clone(), Delete: tombstone})
		return true
	})
	if err != nil {
		return fmt.Errorf("read the revisions from %d to %d: %w", w.from, w.to, err)
	}
	return nil
}

// claim keeps those of the changes that are of this partition, each once.
func (w *walk) claim() {
	all := w.found
	w.found = nil
	if len(w.held) > 0 {
		// The file's come last, so that their duplicates are dropped: they have no previous
		// values.
		all = append(w.held, all...)
		slices.SortStableFunc(all, compareChanges)
		all = slices.CompactFunc(all, func(a, b Change) bool { return a.Revision == b.Revision })
	}
	for _, c := range all {
		if c.Main > w.through {
			return
		}
		e := w.store.keys.get(c.Kv.Key())
		if e == nil {
			continue
		}
		i, ok := e.find(c.Revision)
		if !ok {
			continue
		}
		if w.full(c.Main) {
			return
		}
		w.found = append(w.found, c)
		w.previous(e, i, len(w.found)-1)
	}
}

// resolve fetches the values that are not in memory. A compaction may have overtaken
// the walk meanwhile; then the removed values are reported as compacted, not as missing.
func (w *walk) resolve() error {
	w.bytes = 0
	for i := range w.found {
		c := &w.found[i]
		if w.laden() && c.Main != w.found[i-1].Main {
			w.found, w.through = w.found[:i], c.Main-1
			break
		}
		if err := w.fetch(&w.kvs, i, &c.Kv, 0); err != nil {
			return err
		}
		if err := w.fetch(&w.prevs, i, &c.Prev, c.Main); err != nil {
			return err
		}
	}
	s := w.store
	s.RLock()
	defer s.RUnlock()
	if w.from < s.compacted {
		return fault.Compacted
	}
	for i := range w.found {
		if w.found[i].Main > s.compacted {
			break
		}
		w.found[i].Prev = kvwire.KeyValue{}
	}
	return nil
}

// fetch reads the next of those that are missing if it is of the change at place i.
func (w *walk) fetch(from *[]missing, i int, to *kvwire.KeyValue, replacedAt int64) error {
	if len(*from) == 0 || (*from)[0].i != i {
		return nil
	}
	rev := (*from)[0].rev
	*from = (*from)[1:]
	kv, err := w.store.history.Get(rev)
	if err == nil && !kv.Exists() {
		err = w.lost(rev, replacedAt)
	}
	w.bytes += kv.Len()
	*to = kv
	return err
}

// lost says whether a revision may be missing from the file: after a compaction,
// or because a compaction has reached the change (0: none) that replaced it.
func (w *walk) lost(rev Revision, replacedAt int64) error {
	s := w.store
	s.RLock()
	defer s.RUnlock()
	switch {
	case w.from < s.compacted:
		return fault.Compacted
	case replacedAt != 0 && replacedAt <= s.compacted:
		return nil
	}
	return fmt.Errorf("read revision %d.%d: %w, and no compaction has removed it", rev.Main, rev.Sub, ErrMissing)
}
