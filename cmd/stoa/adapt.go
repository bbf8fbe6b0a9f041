package main

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/node"
)

// health answers the health pages with what the node says.
type health struct{ n *node.Node }

func (h health) Alarms() []*pb.AlarmMember { return h.n.OwnAlarms() }

func (h health) IsLearner() bool { return h.n.IsLearner() }

func (h health) HasLeader() bool { return h.n.Leader() != 0 }

func (h health) Read(ctx context.Context, serializable bool) error {
	return h.n.Health(ctx, serializable)
}

// members shows the peer pages the list of members, once there is a node.
type members struct{ n atomic.Pointer[node.Node] }

func (m *members) ClusterID() uint64 {
	if n := m.n.Load(); n != nil {
		return n.ClusterID()
	}
	return 0
}

func (m *members) Members() []*pb.Member {
	n := m.n.Load()
	if n == nil {
		return nil
	}
	list, err := n.Members(context.Background(), false)
	if err != nil {
		return nil
	}
	return list
}

func (m *members) ClusterVersion() string {
	if n := m.n.Load(); n != nil {
		return clusterVersion(n)
	}
	return ""
}

func clusterVersion(n *node.Node) string {
	v, _ := n.ClusterVersion()
	return v.String()
}

// observe shows on /metrics how the node stands.
func observe(m *metrics.Metrics, n *node.Node) {
	m.Extensions.Watch(func() map[string]bool {
		disabled := map[string]bool{}
		for _, e := range n.Extensions() {
			disabled[e.Name] = e.Disabled
		}
		return disabled
	})
	m.Watch(func() metrics.State {
		from, counts := n.State(), n.Counts()
		s := metrics.State{
			ServerID: n.MemberID(), HasLeader: n.Leader() != 0, IsLeader: n.Leader() == n.MemberID(), IsLearner: n.IsLearner(),
			LeaderChanges: n.LeaderChanges(), Peers: from.Peers, Alarms: from.Alarms,
			Revision: n.Revision(), CompactRevision: max(from.CompactRevision, 0), Leases: from.Leases, Sessions: from.Sessions, AuthRevision: n.AuthRevision(),
			BackendBytes: from.BackendBytes, BackendBytesInUse: from.BackendBytesInUse, BackendQuota: n.Quota(), BackendReaders: from.BackendReaders,
			Level: float64(from.Level), Releases: from.Releases,
			Flushing: n.Flushing(), WALBytes: from.WALBytes, WALSegments: from.WALSegments, Moving: from.Moving,
			WatchStreams: from.Watch.Streams, Watchers: from.Watch.Watchers, SlowWatchers: from.Watch.Slow, WatchEvents: from.Watch.Events,
		}
		s.Tenants = tenants(n)
		s.Counts = metrics.Counts{
			Puts: counts.Puts, Deletes: counts.Deletes, PutBytes: counts.PutBytes, Ranges: counts.Ranges, Txns: counts.Txns,
			ProposalsFailed: counts.ProposalsFailed, LearnersPromoted: counts.Promoted, LeasesGranted: counts.Granted, LeasesRevoked: counts.Revoked,
			LeasesRenewed: counts.Renewed, LeasesExpired: counts.Expired,
			Decisions: counts.Decisions, SlotsMoved: counts.SlotsMoved,
		}
		for _, p := range from.Partitions {
			s.Keys += p.Keys
			s.Partitions = append(s.Partitions, metrics.Partition{
				IsLeader: p.Leader == n.MemberID(), Term: p.Term, Committed: p.Committed, Applied: p.Applied, Pending: p.Pending,
				Revision: p.Revision, Closed: p.Closed, Keys: p.Keys, Bytes: p.Bytes, LogBytes: p.LogBytes, Load: p.Load, Worked: p.Worked,
			})
		}
		return s
	})
}

// notifySystemd tells a service manager that asked for it, as etcd does.
func notifySystemd(lg *zap.Logger, state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialTimeout("unixgram", socket, time.Second)
	if err == nil {
		_, err = conn.Write([]byte(state))
		conn.Close()
	}
	if err != nil {
		lg.Warn("failed to notify systemd", zap.String("state", state), zap.Error(err))
	}
}
