package node

import (
	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/bootstrap"
)

// addresses are the members, with the URLs at which their servers are. One that joins a
// cluster has them from there.
func (n *Node) addresses(c *core) []*pb.Member {
	if list := c.machine.Members(); len(list) > 0 {
		return list
	}
	return n.cfg.Members
}

// ownURLs are the peer URLs of this server.
func (n *Node) ownURLs() []string {
	for _, m := range n.addresses(n.core.Load()) {
		if m.GetID() == n.cfg.ID {
			return m.GetPeerURLs()
		}
	}
	return nil
}

// noteMembers notes how many members there are and whether this server has a vote, and has the
// registry follow the list, which decides about servers without data.
func (n *Node) noteMembers(c *core) {
	list := c.machine.Membership()
	n.learner.Store(list.Find(n.cfg.ID).GetIsLearner())
	n.noteVersion(list)
	n.lane.Servers(len(list.Members))
	if n.cfg.Registry == nil || c.joins() {
		return
	}
	var ids, removed []bootstrap.ID
	for _, m := range list.Members {
		ids = append(ids, bootstrap.ID(m.GetID()))
	}
	for _, id := range list.Removed {
		removed = append(removed, bootstrap.ID(id))
	}
	if err := n.cfg.Registry.SetMembers(ids, removed, list.Level); err != nil {
		n.fatal(err)
	}
}

// peersChanged is called by the replica, and must not block.
func (n *Node) peersChanged() { signal(n.linksStale) }

// followPeers keeps the links as the members are.
func (n *Node) followPeers() {
	for {
		select {
		case <-n.life.Done():
			return
		case <-n.linksStale:
			n.link()
		}
	}
}

// link makes links to the members, also to new URLs, and cuts those to servers that all
// groups have let go. A peer that has never been in the list stays: it has dialled, and is
// a member as soon as this server has caught up.
func (n *Node) link() {
	c := n.core.Load()
	list := n.addresses(c)
	for _, m := range list {
		if m.GetID() == n.cfg.ID {
			continue
		}
		if err := n.transport.UpdatePeer(m.GetID(), m.GetPeerURLs()); err != nil {
			n.log.Warn("a member's peer URLs can't be used", memberID("remote-peer-id", m.GetID()), zap.Error(err))
		}
	}
	n.noteMembers(c)
	for _, id := range n.transport.Peers() {
		if n.isRemoved(id) {
			n.log.Info("removed remote peer", memberID("removed-remote-peer-id", id))
			n.transport.RemovePeer(id)
		}
	}
}
