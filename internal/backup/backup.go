// Package backup decides of which state of a server a client's backup is. It is the same in package node and in the
// simulation; locks of flushes, files and waiting are theirs.
//
// A restart and a peer complete the file from the logs, so a cut may take each partition wherever its loop is. A
// backup has no log: a later write that it has, of one partition, would say that an earlier one of another, which it
// lacks, was never made. So it is of a state that all partitions have had together. They have one when each is
// closed through the newest revision of any ([Partitions.Together]). On a server that is busy, or behind, they hardly
// ever do, except at an entry that all execute together ([Partitions.AtMeeting]). If they don't come to one, as
// without a leader, what all have had is the state at the highest revision that all are closed through
// ([Partitions.Apart], and then backend.Snapshot.Past). There is none of one below what they were loaded with: until a server has heard
// of a leader it knows of each partition that it is closed through its own last write alone, which may be long ago,
// and the backup would lack all since.
//
// Invariant: a cut is made while all stores are locked, by the function that the caller gives, once or never.
package backup

import (
	"math"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/store"
)

// Partitions are those of a server, from a recovery to the next.
type Partitions struct {
	stores  []*store.Store
	visible func(partition int) int64
	loaded  int64 // the newest revision of any of them

	awaited atomic.Pointer[func()] // by a backup, nil nearly always
}

// New returns those of stores that have just been loaded. visible is replica.Replica's.
func New(stores []*store.Store, visible func(partition int) int64) *Partitions {
	p := &Partitions{stores: stores, visible: visible}
	for _, s := range stores {
		p.loaded = max(p.loaded, s.Rev())
	}
	return p
}

// Together makes the cut if the partitions are in a state that they have had together.
func (p *Partitions) Together(cut func()) bool {
	store.LockAll(p.stores)
	defer store.UnlockAll(p.stores)
	if rev, newest := p.Closed(); rev < newest {
		return false
	}
	cut()
	return true
}

// AtMeeting has the cut made when the partitions execute an entry together, perhaps one that is on its way already.
// withdraw ends the wait; it reports whether the cut is not made, and will not be.
func (p *Partitions) AtMeeting(cut func()) (withdraw func() bool) {
	p.awaited.Store(&cut)
	return func() bool { return p.awaited.CompareAndSwap(&cut, nil) }
}

// Met is apply.Config's: all partitions stand at one entry, and all stores are locked.
func (p *Partitions) Met() {
	if cut := p.awaited.Swap(nil); cut != nil {
		(*cut)()
	}
}

// Apart makes the cut of partitions wherever they are, and returns the highest revision that all are closed through, unless that
// is below what was loaded.
func (p *Partitions) Apart(cut func()) (rev int64, made bool) {
	store.LockAll(p.stores)
	defer store.UnlockAll(p.stores)
	if rev, _ = p.Closed(); rev < p.loaded {
		return rev, false
	}
	cut()
	return rev, true
}

// Closed is the highest revision that all partitions are closed through, and the newest of any. It is called while all
// stores are locked.
func (p *Partitions) Closed() (rev, newest int64) {
	rev = math.MaxInt64
	for i, s := range p.stores {
		rev, newest = min(rev, p.visible(i)), max(newest, s.Rev())
	}
	return max(rev, p.stores[0].Compacted()), newest
}
