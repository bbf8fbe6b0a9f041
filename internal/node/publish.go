package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// publish keeps what the cluster knows of this server as it is: its name, its client URLs,
// and its release, once the cluster's version has a place for that.
func (n *Node) publish() {
	select {
	case <-n.ready:
	case <-n.life.Done():
		return
	}
	for n.life.Err() == nil {
		if n.publishAll() {
			n.log.Info("published local member to cluster through raft",
				zap.String("name", n.cfg.Name), zap.Strings("client-urls", n.cfg.ClientURLs))
		}
		select {
		case <-n.life.Done():
		case <-n.unpublished:
		}
	}
}

// publishAll announces this server, unless the cluster knows all of it, and tries until that
// has worked. It reports whether there was anything to announce.
func (n *Node) publishAll() (was bool) {
	for !n.published() {
		if n.core.Load().machine.Membership().Find(n.cfg.ID) != nil { // not yet, or not any more
			was = true
			if err := n.publishOnce(); err != nil && !errors.Is(err, fault.VersionTooLow) {
				n.log.Warn("announcing this server's client URLs failed; trying again", zap.Error(err))
			}
		}
		if n.pause(n.life, shortly) != nil {
			return false
		}
	}
	return was
}

func (n *Node) publishOnce() error {
	ctx, cancel := context.WithTimeout(n.life, n.cfg.requestTimeout())
	defer cancel()
	m := &pb.Member{ID: n.cfg.ID, Name: n.cfg.Name, ClientURLs: n.cfg.ClientURLs}
	if !n.core.Load().machine.Membership().AnnouncesReleases() {
		_, err := submitSystem[*pb.MemberUpdateResponse](ctx, n, command.MemberPublish, m)
		return err
	}
	a := membership.Announcement{Member: m, Release: version.Stoa}
	body, err := a.Encode()
	if err != nil {
		return fmt.Errorf("encoding an announcement: %w: %w", err, fault.Internal)
	}
	return n.decide(ctx, command.Command{Kind: command.MemberAnnounce, Body: body})
}

func (n *Node) published() bool {
	list := n.core.Load().machine.Membership()
	m := list.Find(n.cfg.ID)
	return m != nil && m.GetName() == n.cfg.Name && slices.Equal(m.GetClientURLs(), n.cfg.ClientURLs) &&
		(!list.AnnouncesReleases() || list.Releases[n.cfg.ID] == version.Stoa)
}
