package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/stoa-kv/stoa/internal/kvwire"
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

// Change is one key changed at one revision. A deletion's Kv is a tombstone.
type Change struct {
	Revision
	Kv     kvwire.KeyValue
	Prev   kvwire.KeyValue // as of the revision before; none if the key was not there
	Delete bool
	// Hides tells from which clients' watches an extension keeps the change; nil,
	// as nearly always and everywhere in history, means from none.
	Hides func(client string) bool
}

// ErrMissing says that a revision in the index is not in History. A compaction that has
// overtaken the read explains it; if there was none, the file has lost data.
var ErrMissing = errors.New("it is missing in the history")

// ErrClosed is History's once it has been closed: the server is stopping, or a snapshot
// has taken the place of the file. It doesn't mean that data is lost.
var ErrClosed = errors.New("the history has been closed")

// History serves the changes that are no longer in memory: all those in cuts that were
// released. Its methods may be called from any goroutine, also under the
// store's read lock. Errors other than ErrClosed mean that the data can't be read;
// they name the file and the revision.
type History interface {
	// Get returns the value written at rev, or none if there is none (any more).
	Get(rev Revision) (kvwire.KeyValue, error)
	// Scan calls fn for every change with from <= Main <= to, of all
	// partitions, in order, until fn returns false. kv is good until fn returns.
	Scan(from, to int64, fn func(rev Revision, kv kvwire.KeyValue, tombstone bool) bool) error
}

// noHistory is that of a store of which nothing is ever released.
type noHistory struct{}

func (noHistory) Get(Revision) (kvwire.KeyValue, error) { return kvwire.KeyValue{}, nil }

func (noHistory) Scan(int64, int64, func(Revision, kvwire.KeyValue, bool) bool) error { return nil }

// Store is one partition's keys. Every method needs the lock, unless it says
// that it takes it itself: writers hold Lock, readers RLock.
type Store struct {
	mu      sync.RWMutex
	history History

	// keys finds a key by hash: a search in the order costs ten times as much
	// in a store of a million keys. live and tombstones order them: live has the
	// keys that exist, tombstones those that exist only in history. These two are
	// separate so that counting and ranging over existing keys never scans the
	// tombstones of a queue's elements.
	keys             table
	live, tombstones ordered
	bytes            int64 // of live
	sums             Sums  // of live, but for moves
	windows          Windows
	leases           map[int64]map[*entry]struct{}

	rev         int64
	index, term uint64
	lastDelete  int64 // no tombstone is newer than this

	log          changeLog
	arrivals     arrivals
	movedThrough int64 // keys that have moved away have no change above it in the log
	compacted    int64
	sweep        sweep
	bounds       bounds
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
		keys:      newTable(),
		leases:    map[int64]map[*entry]struct{}{},
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

// LockAll takes all stores of a server for writing.
func LockAll(stores []*Store) {
	for _, s := range stores {
		s.Lock()
	}
}

// UnlockAll ends what LockAll has begun.
func UnlockAll(stores []*Store) {
	for _, s := range stores {
		s.Unlock()
	}
}

// RLock takes the store for reading.
func (s *Store) RLock() { s.mu.RLock() }

// TryRLock is RLock for those who must not wait for a writer. It reports whether it has taken the store.
func (s *Store) TryRLock() bool { return s.mu.TryRLock() }

// RUnlock ends reading.
func (s *Store) RUnlock() { s.mu.RUnlock() }

// Rev is the revision of the last write here, or of the last SetRev.
func (s *Store) Rev() int64 { return s.rev }

// SetRev moves the revision forward to rev without a write; it never goes back.
func (s *Store) SetRev(rev int64) { s.rev = max(s.rev, rev) }

// Applied is the position in the partition's log that the store has reached.
func (s *Store) Applied() (index, term uint64) { return s.index, s.term }

// SetApplied moves the position.
func (s *Store) SetApplied(index, term uint64) {
	s.index, s.term = index, term
	if index%Window == 0 {
		s.windows.reach(index, s.sums.content())
	}
}

// Compacted is the revision below which history may not be read; -1 if the
// store was never compacted.
func (s *Store) Compacted() int64 { return s.compacted }

// Keys is the number of keys that exist.
func (s *Store) Keys() int { return s.live.len() }

// Bytes is the size of the key-values that exist, encoded, keys included.
func (s *Store) Bytes() int64 { return s.bytes }

// Get returns key's current value, or none.
func (s *Store) Get(key []byte) kvwire.KeyValue {
	if e := s.keys.get(key); e != nil {
		return e.current()
	}
	return kvwire.KeyValue{}
}

// Put writes key at revision at, which must be above every revision written
// here before. Key and value are copied.
func (s *Store) Put(at Revision, key, value []byte, lease int64) Change {
	return s.put(at, key, value, lease, kvwire.KeyValue{})
}

// PutMade is Put for a caller that has encoded the key-value already: it isn't encoded and
// copied once more, unless Put would give it other numbers.
func (s *Store) PutMade(at Revision, kv kvwire.KeyValue) Change {
	return s.put(at, kv.Key(), kv.Value(), kv.Lease(), kv)
}

func (s *Store) put(at Revision, key, value []byte, lease int64, kv kvwire.KeyValue) Change {
	s.advance(at)
	var prev, before kvwire.KeyValue
	fields := kvwire.Fields{CreateRevision: at.Main, ModRevision: at.Main, Version: 1, Lease: lease}
	e := s.keys.get(key)
	if e != nil {
		before = s.prior(e, at.Main)
		if prev = e.current(); prev.Exists() {
			fields.CreateRevision = prev.CreateRevision()
			fields.Version = prev.Version() + 1
			s.supersede(e)
		} else {
			s.tombstones.remove(e)
		}
	}
	if !kv.Exists() || kv.Fields() != fields {
		kv = kvwire.Make(key, value, fields)
	}
	s.bytes += int64(kv.Len() - prev.Len())
	s.sums.change(key, prev, kv)
	if e == nil {
		e = &entry{}
		e.set(kv)
		s.keys.add(e)
	} else {
		e.set(kv)
	}
	if !prev.Exists() {
		s.live.add(e)
	}
	e.sub = uint32(at.Sub)
	s.reattach(e, prev.Lease(), lease)
	c := Change{Revision: at, Kv: kv, Prev: before}
	s.log.append(c)
	return c
}

// Delete removes key at revision at; false, and no revision is used, if it was
// not there.
func (s *Store) Delete(at Revision, key []byte) (Change, bool) {
	e := s.keys.get(key)
	if e == nil || e.deleted() {
		return Change{}, false
	}
	s.advance(at)
	s.live.remove(e)
	prev, before := e.kv(), s.prior(e, at.Main)
	s.bytes -= int64(prev.Len())
	s.sums.change(key, prev, kvwire.KeyValue{})
	s.supersede(e)
	e.past.add(mark{main: at.Main, sub: uint32(at.Sub), tomb: true})
	// A copy: a part of the deleted KeyValue would keep its value in memory.
	e.set(kvwire.Tombstone(prev.Key()))
	s.tombstones.add(e)
	s.lastDelete = at.Main
	s.reattach(e, prev.Lease(), 0)
	c := Change{Revision: at, Kv: e.kv(), Prev: before, Delete: true}
	s.log.append(c)
	return c, true
}

// prior is the state of e before revision main. That is the current one, unless the
// same transaction has written it already: watchers compare with the revision before,
// not with a state that was never visible.
func (s *Store) prior(e *entry, main int64) kvwire.KeyValue {
	last := Revision{main, int64(e.sub)}
	if cur := e.current(); cur.Exists() {
		if cur.ModRevision() != main {
			return cur
		}
	} else {
		if e.past == nil {
			return kvwire.KeyValue{}
		}
		if last = e.past.marks[len(e.past.marks)-1].rev(); last.Main != main {
			return kvwire.KeyValue{}
		}
	}
	return s.change(last).Prev
}

// advance enforces invariant 1. A revision out of order would silently break
// searches in history and the equality of replicas, so it stops the server instead.
func (s *Store) advance(at Revision) {
	if at.Main < s.rev || !s.log.last.Less(at) || at.Sub > 1<<32-1 {
		panic(fmt.Sprintf("store: write at %d.%d after revision %d (last change %d.%d)",
			at.Main, at.Sub, s.rev, s.log.last.Main, s.log.last.Sub))
	}
	s.rev = at.Main
}

// supersede moves e's current revision into its past.
func (s *Store) supersede(e *entry) {
	if e.past == nil {
		e.past = newPast()
		s.sweep.age(e)
	}
	e.past.add(mark{main: e.kv().ModRevision(), sub: e.sub})
}

// reattach takes a key from one lease to another; 0 is none.
func (s *Store) reattach(e *entry, old, lease int64) {
	if old == lease {
		return
	}
	if old != 0 {
		keys := s.leases[old]
		delete(keys, e)
		if len(keys) == 0 {
			delete(s.leases, old)
		}
	}
	if lease != 0 {
		keys := s.leases[lease]
		if keys == nil {
			keys = map[*entry]struct{}{}
			s.leases[lease] = keys
		}
		keys[e] = struct{}{}
	}
}

// LeaseKeys returns the keys that carry the lease now, sorted.
func (s *Store) LeaseKeys(lease int64) [][]byte {
	keys := s.leases[lease]
	if len(keys) == 0 {
		return nil
	}
	out := make([][]byte, 0, len(keys))
	for e := range keys {
		out = append(out, slices.Clone(e.key()))
	}
	sort.Slice(out, func(i, j int) bool { return view(out[i]) < view(out[j]) })
	return out
}

// view reads b as a string without copying it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
