package node

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// versionInterval is how often the leader looks at the releases of the members. etcd looks
// every 4 s, which only delays what a release adds.
const versionInterval = time.Second

// watchVersions has the leader raise the cluster's version, as etcd's monitorVersions does. A
// downgrade is ended by any member: the leader may be of the earlier release by then.
func (n *Node) watchVersions() {
	for n.pause(n.life, versionInterval) == nil {
		c := n.core.Load()
		change, needed := n.dueVersion(c.machine.Membership())
		if !needed || change.Op == membership.Raise && !c.replica.Leading() {
			continue
		}
		ctx, cancel := context.WithTimeout(n.life, n.cfg.requestTimeout())
		err := n.decide(ctx, command.Command{Kind: command.ClusterVersion, User: own(c), Body: change.Encode()})
		cancel()
		if err != nil && change.Op == membership.Raise && n.life.Err() == nil {
			n.log.Warn("failed to update cluster version; trying again", zap.Error(err))
		}
	}
}

// dueVersion is the change of the version that the releases of the members call for. While a
// member isn't connected its release isn't known, and nothing changes.
func (n *Node) dueVersion(list *membership.List) (c membership.VersionChange, needed bool) {
	members := []version.Known{n.cfg.Known}
	for _, m := range list.Members {
		if m.GetID() == n.cfg.ID {
			continue
		}
		k, ok := n.transport.KnownBy(m.GetID())
		if !ok {
			return c, false
		}
		members = append(members, k)
	}
	return list.DueVersion(members)
}

// noteVersion tells the operator that the version of the cluster has changed.
func (n *Node) noteVersion(list *membership.List) {
	from := version.Level(n.level.Swap(uint64(list.Level)))
	if from == 0 && list.Downgrading {
		n.log.Info("the cluster's version is held down by a downgrade; it rises once that is cancelled (etcdctl downgrade cancel)",
			zap.Stringer("cluster-version", list.Level))
	}
	if from == list.Level || from == 0 {
		return
	}
	n.log.Info("updated cluster version", memberID("cluster-id", n.cfg.ClusterID), memberID("local-member-id", n.cfg.ID),
		zap.Stringer("from", from), zap.Stringer("to", list.Level))
	signal(n.unpublished)
}

// noteStored tells the operator that the release before may be started on this server's data.
func (n *Node) noteStored(before, now *membership.List) {
	if now.Downgrading && now.Level < before.Level {
		n.log.Info("The server is ready to downgrade", zap.Stringer("target-version", now.Level), zap.String("server-version", version.Stoa))
	}
}

// ClusterVersion is the version of the cluster, as the first release of stoa that knows it,
// and whether a downgrade to it is under way.
func (n *Node) ClusterVersion() (v version.Level, downgrading bool) {
	list := n.core.Load().machine.Membership()
	return list.Level, list.Downgrading
}

// early reports whether a request was refused because of the cluster's version, which a new cluster reaches within a moment
// of its start: until a time by clock.
func (n *Node) early(err error, until int64) bool {
	_, downgrading := n.ClusterVersion()
	return errors.Is(err, fault.VersionTooLow) && !downgrading && n.clock() < until
}

// Downgrade begins or cancels a downgrade, or with Validate only says whether one could begin
// now. It returns once all of the cluster has followed.
func (n *Node) Downgrade(ctx context.Context, action pb.DowngradeRequest_DowngradeAction, target version.Level) error {
	if _, err := n.Members(ctx, true); err != nil { // a linearizable read, as etcd's
		return err
	}
	change := membership.VersionChange{Op: membership.Cancel}
	if action != pb.DowngradeRequest_CANCEL {
		m := n.core.Load().machine
		err := m.Membership().MayDowngrade(target)
		if err == nil && !m.MayDowngrade(target) {
			err = fault.BadDowngradeTarget
		}
		if err != nil || action == pb.DowngradeRequest_VALIDATE {
			return err
		}
		change = membership.VersionChange{Op: membership.Downgrade, To: target}
	}
	ctx, cancel := n.limited(ctx)
	defer cancel()
	who, err := n.identify(ctx)
	if err != nil {
		return err
	}
	return n.decide(ctx, command.Command{Kind: command.ClusterVersion, User: who.user, Body: change.Encode()})
}
