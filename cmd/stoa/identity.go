package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/rpc"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/transport"
)

// identify finds out which member of which cluster this server is: by its data, or, if
// it has none, by its settings and what the other members say.
func (s *server) identify(ctx context.Context) (bootstrap.Record, error) {
	if err := s.adoptData(); err != nil {
		return bootstrap.Record{}, err
	}
	if rec, in := s.registry.Record(); in {
		s.lg.Info("server has already been initialized", zap.String("data-dir", s.cfg.DataDir), zap.String("dir-type", "member"),
			zap.Stringer("cluster-id", rec.Cluster), zap.Stringer("local-member-id", rec.Member))
		s.reportIgnored(rec)
		if err := s.checkRestored(rec); err != nil {
			return rec, err
		}
		return rec, s.registry.Resume()
	}
	if err := s.join(ctx); err != nil {
		return bootstrap.Record{}, err
	}
	rec, _ := s.registry.Record()
	return rec, nil
}

// adoptData makes a record for a data directory that has only the data.
func (s *server) adoptData() error {
	if _, in := s.registry.Record(); in {
		return nil
	}
	if _, restored := s.registry.Restored(); restored {
		return nil
	}
	path := s.dbPath()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("--data-dir %s: %w", s.cfg.DataDir, err)
	}
	b, err := backend.Open(path, backend.Options{Logger: s.lg})
	if err != nil {
		return err
	}
	id := b.Identity()
	if err := b.Close(); err != nil {
		return err
	}
	s.lg.Warn("the data has no record of its member; a new one is made", zap.String("data-dir", s.cfg.DataDir))
	return s.registry.Adopt(bootstrap.ID(id.Cluster), bootstrap.ID(id.Server), id.Partitions)
}

// self returns this server and its cluster: of a restored directory as the snapshot was
// restored, or else as in the settings.
func (s *server) self(ctx context.Context) (bootstrap.Self, error) {
	rec, restored := s.registry.Restored()
	if !restored {
		if err := s.cfg.CheckBootstrap(ctx); err != nil {
			return bootstrap.Self{}, err
		}
		return bootstrap.SelfOf(s.cfg), nil
	}
	if err := s.checkRestored(rec); err != nil {
		return bootstrap.Self{}, err
	}
	s.lg.Info("the data directory was restored from a snapshot", zap.String("data-dir", s.cfg.DataDir))
	s.reportIgnored(rec)
	return rec.Self(), nil
}

// checkRestored refuses a directory without the state that was restored into it: a server
// that hasn't begun to use it would begin with an empty one.
func (s *server) checkRestored(rec bootstrap.Record) error {
	if rec.State == 0 || rec.Begun {
		return nil
	}
	if _, err := os.Stat(s.dbPath()); err != nil {
		return fmt.Errorf("the state that was restored from a snapshot is gone (%w): remove the data directory, and restore it again", err)
	}
	return nil
}

func (s *server) dbPath() string { return filepath.Join(s.cfg.DataDir, "member", "snap", "db") }

// reportIgnored logs the settings that the data overrules, if they differ.
func (s *server) reportIgnored(rec bootstrap.Record) {
	c := s.cfg
	if c.Given("partitions") && c.Partitions != rec.Partitions {
		s.lg.Warn("--partitions is ignored: the data has another number", zap.Int("partitions", rec.Partitions), zap.Int("asked-for", c.Partitions))
	}
	if !c.Given("initial-cluster") && !c.Given("initial-cluster-token") || c.InitialCluster == nil {
		return
	}
	self := bootstrap.SelfOf(c)
	if rec.State != 0 {
		self.Cluster = bootstrap.RestoredCluster(self.Cluster, rec.State)
	}
	if self.Cluster != rec.Cluster || self.Member != rec.Member {
		s.lg.Warn("--initial-cluster and --initial-cluster-token are ignored, and describe another cluster or member than the data does: is this the right --data-dir?",
			zap.String("data-dir", c.DataDir), zap.Stringer("cluster-id", rec.Cluster), zap.Stringer("local-member-id", rec.Member))
	}
}

// checkPeerURLs says so if this server announces other peer URLs than the list of members
// has.
func (s *server) checkPeerURLs() {
	members, _ := s.node.Members(context.Background(), false) // not linearizable: it can't fail
	for _, m := range members {
		if m.ID == s.node.MemberID() && s.cfg.Given("initial-advertise-peer-urls") {
			s.comparePeerURLs(m.PeerURLs)
		}
	}
}

func (s *server) comparePeerURLs(known []string) {
	asked := slices.Sorted(slices.Values(types.URLs(s.cfg.AdvertisePeerURLs).StringSlice()))
	if !slices.Equal(slices.Sorted(slices.Values(known)), asked) {
		s.lg.Warn("--initial-advertise-peer-urls is ignored: the other members look for this one at the peer URLs that the list of members has",
			zap.Strings("initial-advertise-peer-urls", asked), zap.Strings("member-peer-urls", known))
	}
}

func (s *server) nodeConfig(rec *bootstrap.Record) (node.Config, error) {
	cfg := s.cfg
	links := transport.NewMetrics()
	s.metrics.Registry.MustRegister(links)
	n := node.Config{
		ID: uint64(rec.Member), ClusterID: uint64(rec.Cluster), Registry: s.registry, Begun: rec.Begun, Joins: rec.Joined,
		ForceNewCluster: cfg.ForceNewCluster,
		StrictReconfig:  cfg.StrictReconfigCheck, MaxLearners: cfg.MaxLearners, Balance: cfg.Balance == "on",
		ClientURLs: types.URLs(cfg.AdvertiseClientURLs).StringSlice(),
		DataDir:    cfg.DataDir, WALDir: cfg.WALDir, Partitions: rec.Partitions,
		Tick: cfg.HeartbeatInterval, Election: cfg.ElectionTimeout,
		FlushInterval: cfg.BackendBatchInterval, CatchUpEntries: cfg.SnapshotCatchUpEntries,
		QuotaBytes: cfg.QuotaBackendBytes, MaxRequestBytes: int(cfg.MaxRequestBytes),
		Compaction:   node.AutoCompaction{Period: cfg.AutoCompaction.Period, Revisions: cfg.AutoCompaction.Revisions},
		DefragmentAt: int64(cfg.DefragThresholdMegabytes) << 20, WarningApply: cfg.WarningApplyDuration,
		CheckInterval: cfg.CorruptCheckTime, InitialCheck: cfg.InitialCorruptCheck,
		Caller: rpc.Caller, Detach: h2.Detach, Called: rpc.Called, Credentials: s.credentials(), Tokens: s.tokens, BcryptCost: bcryptCost(cfg, s.lg),
		Tracer:  s.tracer,
		Logger:  s.lg,
		Metrics: s.metrics,
		Fatal: func(err error) {
			// Not through stop: after a failed sync nothing may be written. The audit log tells of requests that have been answered.
			s.lg.Error("stoa can't go on", zap.Error(err))
			s.ports.endAudit(fatalAuditLimit)
			_ = s.lg.Sync()
			os.Exit(1)
		},
		Removed: func() { close(s.removed) },
		Observe: node.Observe{
			Transport: links,
			ExtensionCalled: func(c node.ExtensionCall) {
				s.metrics.Extensions.Called(c.Name, c.Took, c.Steps, c.Writes, c.Failed)
			},
		},
	}
	// A restart without --name keeps the name that the cluster knows, and a restored member that with which it was restored.
	if !rec.Begun && rec.State == 0 || cfg.Given("name") {
		n.Name = cfg.Name
	}
	// The same list on every initial member: client URLs come later, by the log.
	for _, m := range rec.Members {
		n.Members = append(n.Members, &pb.Member{ID: uint64(m.ID), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	var err error
	n.PeerTLS, err = s.ports.peerClientTLS()
	n.Runs = func(m *pb.Member) bool {
		cluster, _, err := serve.FetchMembers(context.Background(), n.PeerTLS, m.GetPeerURLs())
		return err == nil && cluster == n.ClusterID
	}
	return n, err
}
