package host

import (
	"sync/atomic"
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The map is a hint, and may be large: with many extensions, each registration changes it.
const (
	mapPause = time.Second // between two large maps for one client
	largeMap = 100         // rules
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
	d.toldMap, d.toldAt = m, now
	return d.s.of.hints.of(m)
}

// hints keeps the message with the last map, which is the same for all sessions.
type hints struct{ last atomic.Pointer[hint] }

type hint struct {
	of   *placement.Map
	told *stoapb.PartitionMap
}

func (h *hints) of(m *placement.Map) *stoapb.PartitionMap {
	if last := h.last.Load(); last != nil && last.of == m {
		return last.told
	}
	told := &stoapb.PartitionMap{Partitions: uint32(m.Partitions()), Slots: m.Table()}
	for r := range m.EachRule() {
		told.Rules = append(told.Rules, &stoapb.PlacementRule{Key: []byte(r.Key), Slot: uint32(r.Slot)})
	}
	h.last.Store(&hint{m, told})
	return told
}
