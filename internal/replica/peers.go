package replica

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/membership"
)

// peers are the other servers with which this one has links. The set is replaced, never
// changed.
type peers struct {
	mu      sync.Mutex // held by those that replace it
	present atomic.Pointer[map[uint64]*atomic.Int64]
	ids     atomic.Pointer[[]uint64]
	list    *membership.List // from which they follow
}

// Peers returns the servers with which this one has links, ascending: the members, and
// those that the configuration of some group still has, or may have again after a power failure. A
// removed server leaves the groups one by one, and until the last of them has sealed that its
// acknowledgements and votes may be needed.
func (r *Replica) Peers() []uint64 { return *r.peers.ids.Load() }

// follow computes the peers again, and reports whether they or the list are others.
func (p *peers) follow(r *Replica) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := r.cfg.Machine.Membership()
	changed = list != p.list
	p.list = list
	next := map[uint64]*atomic.Int64{}
	old := map[uint64]*atomic.Int64{}
	if before := p.present.Load(); before != nil {
		old = *before
	}
	add := func(id uint64) {
		switch {
		case id == r.cfg.ID || next[id] != nil:
		case old[id] != nil:
			next[id] = old[id]
		default:
			next[id] = new(atomic.Int64)
			next[id].Store(r.now())
		}
	}
	for _, m := range list.Members {
		add(m.GetID())
	}
	for q := range r.cfg.Logs {
		c := r.cfg.Machine.Configuration(q)
		for _, id := range slices.Concat(c.Voters, c.Learners) {
			add(id)
		}
		if c.Unsealed != 0 { // it may have been removed
			add(c.Unsealed)
		}
	}
	ids := slices.Sorted(maps.Keys(next))
	if p.ids.Load() != nil && slices.Equal(ids, *p.ids.Load()) {
		return changed
	}
	p.present.Store(&next)
	p.ids.Store(&ids)
	return true
}

// hear notes that a message of a peer was received.
func (p *peers) hear(id uint64, now int64) {
	if h := (*p.present.Load())[id]; h != nil {
		h.Store(now)
	}
}

// heard is the tick at which a peer was last heard of; of others it is long ago.
func (p *peers) heard(id uint64) int64 {
	if h := (*p.present.Load())[id]; h != nil {
		return h.Load()
	}
	return math.MinInt64 / 2
}

// quorum reports whether those for which has is true are a majority of the voters of each
// group. Groups that follow a change of members have different voters for a while.
func (r *Replica) quorum(has func(id uint64) bool) bool {
	for _, g := range r.groups {
		if !r.cfg.Machine.Configuration(g.id).Quorum(has) {
			return false
		}
	}
	return true
}

// alone reports whether this server is the only voter of every group.
func (r *Replica) alone() bool {
	for _, g := range r.groups {
		if v := r.cfg.Machine.Configuration(g.id).Voters; len(v) != 1 || v[0] != r.cfg.ID {
			return false
		}
	}
	return true
}
