package replica

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Closed promises: once index of the group is applied, every change of its
// partition at or below Revision is.
type Closed struct {
	Group    int // between servers, its number (membership.Groups)
	Index    uint64
	Revision int64
}

// closedRevision is a server's state of one partition's closed revision.
type closedRevision struct {
	revision atomic.Int64 // never goes back
	reported atomic.Int64 // the highest passed to Config.Closed
	mu       sync.Mutex
	pending  []Closed // received from the leader, until their index is applied
}

// maxPendingClosed bounds pending for a lagging follower.
const maxPendingClosed = 256

// Visible returns the revision at which partition p can be read. The caller
// holds p's store lock, and the store's present content is exactly the state
// at that revision.
//
// A store may show a stamp before the closed revision covers it, so the larger
// of the two counts: stamps increase along the log.
func (r *Replica) Visible(p int) int64 {
	return max(r.Closed(p), r.cfg.Stores[p].Rev(), 1)
}

// Closed returns the closed revision of partition p: every change at or below
// it is applied here, none will come.
func (r *Replica) Closed(p int) int64 {
	c := &r.closed[p]
	if len(r.groups) == 1 {
		return c.revision.Load()
	}
	closed, ok := r.seq.Closed(p)
	if !ok {
		return c.revision.Load()
	}
	return c.raise(closed)
}

// Readable returns the revision at which a read of the partitions is evaluated:
// the highest that all of them are closed through, or 0, the newest state, if
// there is one partition only.
func (r *Replica) Readable(parts placement.Set) int64 {
	if len(r.groups) == 1 {
		return 0
	}
	rev := int64(math.MaxInt64)
	for p := range parts.Each() {
		// Including the store's revision: a follower's group raises its closed
		// revision slightly after it has applied, and a client may read in
		// between.
		r.groups[p].store.RLock()
		rev = min(rev, r.Visible(p))
		r.groups[p].store.RUnlock()
	}
	return rev
}

// AllClosed records that all partitions are closed through a revision: keys
// begin to move there, or have moved, while all stores are locked.
func (r *Replica) AllClosed(revision int64) {
	for p := range r.closed {
		r.closed[p].raise(revision)
	}
}

func (c *closedRevision) raise(revision int64) int64 {
	if raise(&c.revision, revision) {
		return revision
	}
	return c.revision.Load()
}

// raise sets a revision that never goes back, and reports whether it was lower.
func raise(r *atomic.Int64, to int64) bool {
	for {
		old := r.Load()
		if to <= old {
			return false
		}
		if r.CompareAndSwap(old, to) {
			return true
		}
	}
}

// learnClosed takes the leader's closed revision. It stays valid after a leader
// change: the next leader stamps above it.
func (r *Replica) learnClosed(m Closed) {
	p, is := r.resized.groups.Partition(uint32(m.Group))
	if !is {
		return
	}
	c := &r.closed[p]
	c.mu.Lock()
	if len(c.pending) == maxPendingClosed {
		c.pending = slices.Delete(c.pending, maxPendingClosed-1, maxPendingClosed)
	}
	c.pending = append(c.pending, m)
	c.mu.Unlock()
	r.groups[p].raiseClosed()
}

// Executed is an index of a partition's group that holds all that is executed of it here, as that of [group.closedHere].
func (r *Replica) Executed(p int) uint64 {
	g := r.groups[p]
	return max(g.applied.Load(), g.met.Load())
}

// Regain takes what another replica of this server has shown of a partition: it is closed through a revision again once this one has executed
// it through the index that held all of that, though no leader says so.
func (r *Replica) Regain(p int, index uint64, revision int64) {
	r.learnClosed(Closed{Group: r.groups[p].number(), Index: index, Revision: revision})
}

// raiseClosed raises the closed revision to what has been applied and reports
// it.
func (g *group) raiseClosed() {
	c := &g.r.closed[g.id]
	applied := g.applied.Load()
	c.mu.Lock()
	c.pending = slices.DeleteFunc(c.pending, func(m Closed) bool {
		if m.Index > applied {
			return false
		}
		c.raise(m.Revision)
		return true
	})
	c.mu.Unlock()
	g.r.reportClosed(g.id)
}

// reportClosed passes the closed revision to the watch hub, unless that was done. A
// raise need not be reported at once: the next one is, or the next tick
// reports it.
func (r *Replica) reportClosed(p int) {
	if rev := r.Closed(p); raise(&r.closed[p].reported, rev) && r.cfg.Closed != nil {
		r.cfg.Closed(p, rev)
	}
}

// tellClosed reports the closed revisions here and, on the leader, tells the
// followers of them: with every batch that moved C or was applied, and with each tick,
// since messages may be lost.
func (r *Replica) tellClosed(moved bool) {
	if len(r.groups) == 1 || !r.seq.IsOpen() {
		return
	}
	if c := r.seq.Committed(); r.told.Swap(c) == c && !moved {
		return
	}
	all := make([]Closed, len(r.groups))
	for p, g := range r.groups {
		all[p] = g.closedHere()
		all[p].Group = g.number()
		r.reportClosed(p)
	}
	for _, peer := range r.Peers() {
		r.cfg.Network.Send(peer, Packet{Closed: all})
	}
}

// closedHere is the group's closed revision and an index that holds all of it,
// which is read later. It takes no lock: it is called by the clock and the
// links.
//
// A rendezvous that was answered is in the index, although this group's loop may not have
// come past it yet: one without a stamp, as a change of permissions, is in no closed
// revision.
func (g *group) closedHere() Closed {
	closed := g.r.Closed(g.id)
	return Closed{Group: g.id, Index: max(g.applied.Load(), g.met.Load()), Revision: closed}
}
