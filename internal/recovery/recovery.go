package recovery

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
)

// Load returns the stores, one to a partition, and the leases as the file has
// them. Stores of a new cluster are at the position at which its logs begin; those of a
// server that joins one are at none. rest is nil or makes pauses, as for store.NewLoader.
func Load(b *backend.Backend, meta *backend.Meta, m *placement.Map, joins bool, rest func()) ([]*store.Store, *lease.Table, error) {
	var stores []*store.Store
	for range m.Partitions() {
		stores = append(stores, store.New(b))
	}
	if err := b.Load(stores, m.Partition, rest); err != nil {
		return nil, nil, err
	}
	for _, s := range stores {
		if index, _ := s.Applied(); index == 0 && !joins {
			s.SetApplied(raftlog.Bootstrap.Index, raftlog.Bootstrap.Term)
		}
	}
	leases := lease.NewTable()
	for _, l := range meta.Leases {
		leases.Load(lease.Lease(l))
	}
	return stores, leases, nil
}

// NewLogs returns a log for each group, to be filled by Replay.
func NewLogs(groups *membership.Groups, configs []*membership.Config) []*raftlog.Log {
	var logs []*raftlog.Log
	for p, c := range configs {
		logs = append(logs, raftlog.New(groups.Number(p), &raftpb.ConfState{Voters: c.Voters, Learners: c.Learners}))
	}
	return logs
}

// Replay returns the function that wal.Open calls with each record. Those of groups that are
// gone are passed over.
func Replay(groups *membership.Groups, logs []*raftlog.Log) func(wal.Record) error {
	return func(r wal.Record) error {
		p, is := groups.Partition(r.Group)
		switch {
		case is:
			return logs[p].Replay(r)
		case groups.Gone(r.Group):
			return nil
		}
		return fmt.Errorf("a record of group %d in a log of %d partitions", r.Group, len(logs))
	}
}

// Keep is what wal.Release takes: indexes, one to a partition, by the numbers of the groups.
func Keep(groups *membership.Groups, indexes []uint64) map[uint32]uint64 {
	keep := map[uint32]uint64{}
	for p, index := range indexes {
		keep[groups.Number(p)] = index
	}
	return keep
}

// Head returns the records at the head of a new segment of the log, for
// wal.Options.
func Head(logs []*raftlog.Log) func() []wal.Record {
	return func() []wal.Record {
		var recs []wal.Record
		for _, l := range logs {
			recs = append(recs, l.HardStateRecord())
		}
		return recs
	}
}

// Align brings the replayed logs to the stores' positions. Logs that are
// behind an installed snapshot are reset, durably.
func Align(w *wal.WAL, logs []*raftlog.Log, stores []*store.Store) error {
	var resets []wal.Record
	for p, l := range logs {
		index, term := stores[p].Applied()
		changed, err := l.Recover(raftlog.Position{Index: index, Term: term})
		if err != nil {
			return fmt.Errorf("the log and the state don't fit together: %w", err)
		}
		if changed {
			resets = append(resets, l.ResetRecord())
		}
	}
	if len(resets) == 0 {
		return nil
	}
	if err := w.Append(resets); err != nil {
		return err
	}
	return w.Sync()
}

// Published returns the published revision of each loaded store and the last
// compaction, for a watch hub.
func Published(stores []*store.Store) (revs []int64, compacted int64) {
	for _, s := range stores {
		s.RLock()
		revs = append(revs, s.Rev())
		compacted = max(compacted, s.Compacted())
		s.RUnlock()
	}
	return revs, compacted
}
