package store

import (
	"fmt"
	"math"
	"sort"
	"sync"
	"unsafe"

	"github.com/tidwall/btree"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Revision names one change: Main is the revision of the operation, Sub counts
// the changes inside it from 0.
type Revision struct{ Main, Sub int64 }

// Less orders revisions as they took effect.
func (r Revision) Less(o Revision) bool {
	return r.Main < o.Main || r.Main == o.Main && r.Sub < o.Sub
}

// Compare orders revisions as cmp.Compare does.
func (r Revision) Compare(o Revision) int {
	switch {
	case r.Less(o):
		return -1
	case o.Less(r):
		return 1
	}
	return 0
}

// Change is one key changed at one revision. Kv and Prev are shared with the
// store and every reader: nobody may write to them. The revision is
// Kv.ModRevision; a deletion's Kv has nothing but Key and ModRevision.
type Change struct {
	Kv     *mvccpb.KeyValue
	Prev   *mvccpb.KeyValue // as of the revision before; nil if the key was not there
	Sub    int64
	Delete bool
	// Hides says from which clients' watches an extension keeps the change; nil,
	// as nearly always and everywhere in history, from nobody's.
	Hides func(client string) bool
}

// Rev is the change's whole revision.
func (c *Change) Rev() Revision { return Revision{c.Kv.ModRevision, c.Sub} }

// History answers for what has left memory: everything in cuts that were
// released. Its methods may be called from any goroutine, also under the
// store's read lock.
type History interface {
	// Get returns the value written at rev, or nil if there is none (any more).
	Get(rev Revision) (*mvccpb.KeyValue, error)
	// Scan calls fn for every change with from <= Main <= to, of all
	// partitions, in order, until fn returns false. A tombstone's kv has
	// nothing but Key and ModRevision.
	Scan(from, to int64, fn func(rev Revision, kv *mvccpb.KeyValue, tombstone bool) bool) error
}

// noHistory is that of a store of which nothing is ever released.
type noHistory struct{}

func (noHistory) Get(Revision) (*mvccpb.KeyValue, error) { return nil, nil }

func (noHistory) Scan(int64, int64, func(Revision, *mvccpb.KeyValue, bool) bool) error { return nil }

// Store is one partition's keys. Every method needs the lock, unless it says
// that it takes it itself: writers hold Lock, readers RLock.
type Store struct {
	mu      sync.RWMutex
	history History

	// keys finds a key by hash: a search in the trees costs ten times as much
	// in a store of a million keys. live and graves order them: live has the
	// keys that exist, graves those that only history remembers. These two are
	// apart so that counting and ranging over what exists never wades through
	// a queue's dead keys.
	keys         map[string]*entry
	live, graves btree.Map[string, *entry]
	leases       map[int64]map[string]struct{}

	rev         int64
	index, term uint64
	lastDelete  int64 // no grave is newer than this

	log       changeLog
	arrivals  arrivals
	departed  int64 // keys that have moved away have no change above it in the log
	compacted int64
	sweep     sweep
	bounds    bounds
}

// New returns an empty store. An empty store is at revision 1 and never
// compacted (-1), as in etcd. h may be nil if nothing is ever released.
func New(h History) *Store {
	if h == nil {
		h = noHistory{}
	}
	start := Revision{1, math.MaxInt64} // no write may take revision 1
	return &Store{
		history:   h,
		log:       changeLog{floor: start, last: start},
		keys:      map[string]*entry{},
		leases:    map[int64]map[string]struct{}{},
		rev:       1,
		compacted: -1,
		sweep:     sweep{allowed: -1, target: -1, done: -1, handed: -1, reported: -1},
		bounds:    defaultBounds,
	}
}

// Lock takes the store for writing.
func (s *Store) Lock() { s.mu.Lock() }

// Unlock ends writing.
func (s *Store) Unlock() { s.mu.Unlock() }

// RLock takes the store for reading.
func (s *Store) RLock() { s.mu.RLock() }

// RUnlock ends reading.
func (s *Store) RUnlock() { s.mu.RUnlock() }

// Rev is the revision of the last write here, or of the last SetRev.
func (s *Store) Rev() int64 { return s.rev }

// SetRev moves the revision forward to rev without a write; it never goes back.
func (s *Store) SetRev(rev int64) { s.rev = max(s.rev, rev) }

// Applied is the position in the partition's log that the store has reached.
func (s *Store) Applied() (index, term uint64) { return s.index, s.term }

// SetApplied moves the position.
func (s *Store) SetApplied(index, term uint64) { s.index, s.term = index, term }

// Compacted is the revision below which history may not be read; -1 if the
// store was never compacted.
func (s *Store) Compacted() int64 { return s.compacted }

// Keys is the number of keys that exist.
func (s *Store) Keys() int { return s.live.Len() }

// Get returns key's current value, or nil.
func (s *Store) Get(key []byte) *mvccpb.KeyValue {
	if e := s.keys[view(key)]; e != nil {
		return e.cur
	}
	return nil
}

// Put writes key at revision at, which must be above every revision written
// here before. The store keeps the slices: the caller must not touch them
// again.
func (s *Store) Put(at Revision, key, value []byte, lease int64) Change {
	s.advance(at)
	kv := &mvccpb.KeyValue{Key: key, Value: value, CreateRevision: at.Main, ModRevision: at.Main, Version: 1, Lease: lease}
	var prev, before *mvccpb.KeyValue
	e := s.keys[view(key)]
	if e != nil {
		before = s.prior(e, at.Main)
	}
	switch {
	case e == nil:
		e = &entry{}
		s.keys[view(key)] = e
		s.live.Set(view(key), e)
	case e.cur == nil:
		s.graves.Delete(view(key))
		s.live.Set(view(key), e)
	default:
		prev = e.cur
		kv.Key = prev.Key // the index refers to these bytes: don't keep two copies
		kv.CreateRevision = prev.CreateRevision
		kv.Version = prev.Version + 1
		s.supersede(e, view(kv.Key))
	}
	e.cur, e.sub = kv, uint32(at.Sub)
	s.reattach(kv.Key, prev, lease)
	c := Change{Kv: kv, Prev: before, Sub: at.Sub}
	s.log.append(c)
	return c
}

// Delete removes key at revision at; false, and no revision is used, if it was
// not there.
func (s *Store) Delete(at Revision, key []byte) (Change, bool) {
	e := s.keys[view(key)]
	if e == nil || e.cur == nil {
		return Change{}, false
	}
	s.advance(at)
	s.live.Delete(view(key))
	prev, before := e.cur, s.prior(e, at.Main)
	name := view(prev.Key)
	s.supersede(e, name)
	e.past.add(mark{main: at.Main, sub: uint32(at.Sub), tomb: true})
	e.cur = nil
	s.graves.Set(name, e)
	s.lastDelete = at.Main
	s.reattach(prev.Key, prev, 0)
	c := Change{
		Kv:   &mvccpb.KeyValue{Key: prev.Key, ModRevision: at.Main},
		Prev: before, Sub: at.Sub, Delete: true,
	}
	s.log.append(c)
	return c, true
}

// prior is what e was before revision main. That is what it is now, unless the
// same transaction has written it already: watchers compare with the revision
// before, not with what nobody ever saw.
func (s *Store) prior(e *entry, main int64) *mvccpb.KeyValue {
	last := Revision{main, int64(e.sub)}
	switch {
	case e.cur != nil:
		if e.cur.ModRevision != main {
			return e.cur
		}
	case e.past == nil:
		return nil
	default:
		last = e.past.marks[len(e.past.marks)-1].rev()
		if last.Main != main {
			return nil
		}
	}
	return s.change(last).Prev
}

// advance holds invariant 1. A revision out of order would silently break
// every search in history and every replica's agreement, so it stops the
// server instead.
func (s *Store) advance(at Revision) {
	if at.Main < s.rev || !s.log.last.Less(at) || at.Sub > 1<<32-1 {
		panic(fmt.Sprintf("store: write at %d.%d after revision %d (last change %d.%d)",
			at.Main, at.Sub, s.rev, s.log.last.Main, s.log.last.Sub))
	}
	s.rev = at.Main
}

// supersede moves e's current revision into its past.
func (s *Store) supersede(e *entry, name string) {
	if e.past == nil {
		e.past = newPast()
		s.sweep.age(name)
	}
	e.past.add(mark{main: e.cur.ModRevision, sub: e.sub})
}

func (s *Store) reattach(key []byte, prev *mvccpb.KeyValue, lease int64) {
	var old int64
	if prev != nil {
		old = prev.Lease
	}
	if old == lease {
		return
	}
	if old != 0 {
		keys := s.leases[old]
		delete(keys, string(key))
		if len(keys) == 0 {
			delete(s.leases, old)
		}
	}
	if lease != 0 {
		keys := s.leases[lease]
		if keys == nil {
			keys = map[string]struct{}{}
			s.leases[lease] = keys
		}
		keys[view(key)] = struct{}{}
	}
}

// LeaseKeys returns the keys that carry the lease now, sorted.
func (s *Store) LeaseKeys(lease int64) [][]byte {
	keys := s.leases[lease]
	if len(keys) == 0 {
		return nil
	}
	out := make([][]byte, 0, len(keys))
	for k := range keys {
		out = append(out, []byte(k))
	}
	sort.Slice(out, func(i, j int) bool { return view(out[i]) < view(out[j]) })
	return out
}

// view reads b as a string without copying it. Keys in the store are never
// written to, and sharing their bytes between the index and the KeyValue saves
// a copy of each key and an allocation at each lookup.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
