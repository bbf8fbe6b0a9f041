package node

import (
	"context"
	"slices"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// publish announces this server's name and client URLs, unless the cluster
// knows them, and tries until that has worked.
func (n *Node) publish() {
	select {
	case <-n.ready:
	case <-n.life.Done():
		return
	}
	for !n.published() {
		if n.core.Load().machine.Membership().Find(n.cfg.ID) == nil { // not yet, or not any more
			if n.pause(n.life, shortly) != nil {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(n.life, n.cfg.requestTimeout())
		_, err := submitSystem[*pb.MemberUpdateResponse](ctx, n, command.MemberPublish, &pb.Member{
			ID: n.cfg.ID, Name: n.cfg.Name, ClientURLs: n.cfg.ClientURLs,
		})
		cancel()
		if err != nil {
			n.log.Warn("announcing this server's client URLs failed; trying again", zap.Error(err))
		}
		if n.pause(n.life, shortly) != nil {
			return
		}
	}
	n.log.Info("published local member to cluster through raft",
		zap.String("name", n.cfg.Name), zap.Strings("client-urls", n.cfg.ClientURLs))
}

func (n *Node) published() bool {
	m := n.core.Load().machine.Membership().Find(n.cfg.ID)
	return m != nil && m.GetName() == n.cfg.Name && slices.Equal(m.GetClientURLs(), n.cfg.ClientURLs)
}
