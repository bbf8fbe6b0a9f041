package recovery

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/salvage"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
)

// Forced is a server that is made the only member of its cluster.
type Forced struct {
	Self    *pb.Member // as it is known; only the ID counts if it is in the list
	Members Membership
	Epochs  []command.Epochs
	// Origin names the proposals that are made here. It has named none before.
	Origin uint64
	Logger *zap.Logger
}

// Force makes the server the only member, by its logs alone (package salvage): they say so
// durably when it returns, and the state follows when they are applied. All groups change in
// one record of the write-ahead log, so a crash leaves the logs as they were or as they shall
// be. It does nothing if the server is alone already.
//
// If it isn't done, the logs first come to a change of the number of partitions: the replica has to
// stop there (replica.Config.Stops), and the server to be forced again.
func (f *Forced) Force(w *wal.WAL, logs []*raftlog.Log, stores []*store.Store) (done bool, err error) {
	var groups []salvage.Group
	for p, l := range logs {
		index, _ := stores[p].Applied()
		groups = append(groups, salvage.Group{
			Config: f.Members.Configs[p], Epochs: f.Epochs[p], Index: index, Revision: stores[p].Rev(), Tail: l.Tail(), Term: l.LastTerm(),
		})
	}
	repairs, done, err := salvage.Plan(f.Self, f.Members.List, groups, f.Origin)
	if err != nil {
		return false, fmt.Errorf("--force-new-cluster: %w", err)
	}
	if repairs == nil {
		f.Logger.Info("--force-new-cluster changes nothing: this member is the only one", id("local-member-id", f.Self.GetID()))
		return true, nil
	}
	var records []wal.Record
	for p, r := range repairs {
		f.report(p, &r)
		if len(r.Entries) == 0 {
			records = append(records, logs[p].ForceCommit(r.Commit)...)
			continue
		}
		records = append(records, logs[p].Force(f.Self.GetID(), r.Entries)...)
	}
	if err := w.Append(records); err != nil {
		return false, err
	}
	return done, w.Sync()
}

// Others are the members that are given up, also those that the logs alone have.
func (f *Forced) Others(logs []*raftlog.Log) ([]*pb.Member, error) {
	var tails [][]*raftpb.Entry
	for _, l := range logs {
		tails = append(tails, l.Tail())
	}
	others, err := salvage.Others(f.Self.GetID(), f.Members.List, tails)
	if err != nil {
		return nil, fmt.Errorf("--force-new-cluster: %w", err)
	}
	return others, nil
}

// report logs as etcd does, for each group.
func (f *Forced) report(p int, r *salvage.Repair) {
	if len(r.Entries) == 0 {
		f.Logger.Info("the number of partitions changes before the members do", zap.Int("group", p), zap.Uint64("commit-index", r.Commit))
		return
	}
	last := r.Entries[len(r.Entries)-1].GetIndex()
	if r.Dropped > 0 {
		f.Logger.Warn("discarding uncommitted WAL entries", zap.Int("group", p), zap.Uint64("entry-index", r.Entries[0].GetIndex()),
			zap.Int("entries", r.Dropped))
	}
	f.Logger.Info("forcing restart member", zap.Int("group", p), id("local-member-id", f.Self.GetID()),
		zap.Uint64("commit-index", last), zap.Int("completed-rendezvous", r.Completed))
}

// id is a member's, as etcd writes it.
func id(key string, id uint64) zap.Field { return zap.String(key, fmt.Sprintf("%x", id)) }
