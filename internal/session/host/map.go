package host

import (
	"sync"
	"sync/atomic"
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The map is a hint, and may be large: with many extensions, each registration changes it.
const (
	mapPause = time.Second // between two large maps for one client
	largeMap = 100         // rules

	maxMapsByUser = 1000
)

// tellMap returns where keys live, if the client wants to know and doesn't. In a
// transit that is where they go: by then most of a hint's use is ahead.
func (d *driver) tellMap() *stoapb.PartitionMap {
	return d.tell(d.server.State().Machine.Placement().Settled())
}

func (d *driver) tell(m *placement.Map) *stoapb.PartitionMap {
	if !d.wantsMap || m == d.toldMap {
		return nil
	}
	now := d.server.Now()
	if now.Sub(d.toldAt) < mapPause && m.NumRules() > largeMap {
		return nil // with a later message
	}
	u, err := d.server.State().Machine.Auth().Authorize(d.s.user)
	if err != nil {
		return nil // the user is gone, and so the session will be
	}
	d.toldMap, d.toldAt = m, now
	return d.s.of.hints.of(m, u)
}

// hints keeps the messages with the last map: the same for all sessions but those of users
// who may know of some of the keys only. Rules name keys, as those of extensions do.
type hints struct{ last atomic.Pointer[hint] }

type hint struct {
	of   *placement.Map
	told *stoapb.PartitionMap

	mu     sync.Mutex
	byUser map[*auth.User]*stoapb.PartitionMap
}

func (h *hints) of(m *placement.Map, u *auth.User) *stoapb.PartitionMap {
	last := h.last.Load()
	if last == nil || last.of != m {
		last = &hint{of: m, told: message(m, nil), byUser: map[*auth.User]*stoapb.PartitionMap{}}
		h.last.Store(last)
	}
	if u.IsRoot() || len(last.told.Rules) == 0 {
		return last.told
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	told := last.byUser[u]
	if told == nil {
		if len(last.byUser) >= maxMapsByUser { // a change of its rights makes another user of one
			clear(last.byUser)
		}
		told = message(m, u)
		last.byUser[u] = told
	}
	return told
}

// message has the rules for keys that the user may read or write.
func message(m *placement.Map, u *auth.User) *stoapb.PartitionMap {
	told := &stoapb.PartitionMap{Partitions: uint32(m.Partitions()), Slots: m.Table()}
	for r := range m.EachRule() {
		if u.Touches(r.Bounds()) {
			told.Rules = append(told.Rules, &stoapb.PlacementRule{Key: []byte(r.Key), Slot: uint32(r.Slot)})
		}
	}
	return told
}
