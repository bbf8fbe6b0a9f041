package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/rpc"
	ptransport "github.com/stoa-kv/stoa/internal/transport"
)

// identity is who this server is, and with whom.
type identity struct {
	id, cluster uint64
	members     []backend.Member
}

// identify finds this server among the founders of its cluster.
func identify(ctx context.Context, cfg *config.Config) (identity, error) {
	_, err := os.Stat(filepath.Join(cfg.DataDir, "member", "snap", "db"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := cfg.CheckBootstrap(ctx); err != nil {
			return identity{}, err
		}
	case err != nil:
		return identity{}, fmt.Errorf("--data-dir %s: %w", cfg.DataDir, err)
	}
	founders, cluster := cfg.Founders()
	me := identity{cluster: cluster}
	for _, f := range founders {
		if f.Name == cfg.Name {
			me.id = f.ID
		}
		// The same list on every founder: client URLs come later, by the log.
		me.members = append(me.members, backend.Member{ID: f.ID, Name: f.Name, PeerURLs: f.PeerURLs})
	}
	if me.id == 0 {
		return me, fmt.Errorf("couldn't find local name %q in the initial cluster configuration (--name, --initial-cluster)", cfg.Name)
	}
	return me, nil
}

func nodeConfig(cfg *config.Config, me identity, peerTLS *transport.TLSInfo, m *metrics.Metrics, lg *zap.Logger) (node.Config, error) {
	links := ptransport.NewMetrics()
	m.Registry.MustRegister(links)
	n := node.Config{
		ID: me.id, ClusterID: me.cluster, Members: me.members,
		Name: cfg.Name, ClientURLs: types.URLs(cfg.AdvertiseClientURLs).StringSlice(),
		DataDir: cfg.DataDir, WALDir: cfg.WALDir, DefaultPartitions: cfg.Partitions,
		Tick: cfg.HeartbeatInterval, Election: cfg.ElectionTimeout,
		FlushInterval: cfg.BackendBatchInterval, CatchUpEntries: cfg.SnapshotCatchUpEntries,
		QuotaBytes: cfg.QuotaBackendBytes, MaxRequestBytes: int(cfg.MaxRequestBytes),
		Compaction: node.AutoCompaction{Period: cfg.AutoCompaction.Period, Revisions: cfg.AutoCompaction.Revisions},
		Caller:     rpc.Caller,
		Logger:     lg,
		Fatal: func(err error) {
			// Not through stop: after a failed sync nothing may be written.
			lg.Error("stoa can't go on", zap.Error(err))
			_ = lg.Sync()
			os.Exit(1)
		},
		Observe: node.Observe{
			WALSync:       func(d time.Duration) { m.Disk.WALFsync.Observe(d.Seconds()) },
			BackendCommit: func(d time.Duration) { m.Disk.BackendCommit.Observe(d.Seconds()) },
			Transport:     links,
			ExtensionCalled: func(c node.ExtensionCall) {
				m.Extensions.Called(c.Name, c.Took, c.Steps, c.Writes, c.Failed)
			},
		},
	}
	if cfg.PartitionsGiven {
		n.Partitions = cfg.Partitions
	}
	var err error
	if n.PeerTLS, err = peerTLS.ClientConfig(); err != nil {
		return n, fmt.Errorf("peer TLS: %w", err)
	}
	return n, nil
}
