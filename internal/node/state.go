package node

import (
	"time"

	"github.com/stoa-kv/stoa/internal/load"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

// hottest is how many prefixes, and slots, of a partition are shown.
const hottest = 5

// State is the server's status, for metrics and operators. It takes each
// store's read lock for a moment.
type State struct {
	Peers           []uint64 // the other members
	Alarms          []metrics.Alarm
	Leases          int
	Sessions        int // open in the cluster
	CompactRevision int64

	BackendBytes, BackendBytesInUse int64
	BackendReaders                  int // open read transactions
	WALBytes                        int64
	WALSegments                     int
	Moving                          bool // keys go from partition to partition
	Level                           version.Level
	Releases                        map[uint64]string // that members have announced

	Watch      watch.Stats
	Partitions []PartitionState
}

// PartitionState is the part of State that each partition has.
type PartitionState struct {
	replica.Standing
	Revision int64 // of the last change of a key
	Keys     int64
	Bytes    int64 // of the key-values that exist
	Slots    int
	LogBytes int64         // of entries in memory
	Load     float64       // of the partition's loop, decayed; 1 is all the time
	Worked   time.Duration // by the loop, since the start
	Hottest  []load.Prefix
	HotSlots []load.Slot
}

// State returns the server's status.
func (n *Node) State() State {
	c := n.core.Load()
	s := State{
		Leases: c.leases.Len(), Watch: n.hub.Stats(), BackendReaders: c.backend.Readers(),
		BackendBytes: c.backend.Size(), BackendBytesInUse: c.backend.SizeInUse(),
		WALBytes: c.wal.Size(), WALSegments: c.wal.Segments(),
		Moving: c.machine.Placement().Transit() != nil, Sessions: c.machine.OpenSessions(),
	}
	s.Peers = c.replica.Peers()
	list := c.machine.Membership()
	s.Level, s.Releases = list.Level, list.Releases
	for _, a := range c.machine.Alarms() {
		s.Alarms = append(s.Alarms, metrics.Alarm{Member: a.GetMemberID(), Type: a.GetAlarm().String()})
	}
	where := c.machine.Placement()
	now := n.load.Snapshot(where, load.Counters)
	loops, slots := now.Loops(where), now.Hottest(hottest, where)
	for p, st := range c.stores {
		st.RLock()
		rev, keys, bytes, compacted := st.Rev(), st.Keys(), st.Bytes(), st.Compacted()
		st.RUnlock()
		s.CompactRevision = max(s.CompactRevision, compacted)
		s.Partitions = append(s.Partitions, PartitionState{
			Standing: c.replica.Standing(p), Revision: rev, Keys: int64(keys), Bytes: bytes,
			Slots: where.SlotsOf(p), LogBytes: c.logs[p].Bytes(),
			Load: loops[p], Worked: n.load.Time(p), Hottest: now.Hot[p][:min(hottest, len(now.Hot[p]))], HotSlots: slots[p],
		})
	}
	return s
}

// Quota is the size at which writes are refused, 0 if there is none.
func (n *Node) Quota() int64 { return max(n.cfg.QuotaBytes, 0) }
