package node

import (
	"slices"

	"go.uber.org/zap"
)

// removed ends a server that is not a member any more: all groups go on without it. It logs
// in etcd's words, and only once. Any goroutine may call it.
func (n *Node) removed(why string) {
	n.removedOnce.Do(func() {
		n.log.Warn("the member has been permanently removed from the cluster; data-dir used by this member must be removed",
			memberID("local-member-id", n.cfg.ID), zap.String("data-dir", n.cfg.DataDir), zap.String("reason", why))
		if n.cfg.Removed != nil {
			n.cfg.Removed()
		}
	})
}

// isRemoved reports whether a server was a member once and has been let go by all groups,
// which may still need its acknowledgements before.
func (n *Node) isRemoved(id uint64) bool {
	c := n.core.Load()
	return slices.Contains(c.machine.Membership().Removed, id) && !slices.Contains(c.replica.Peers(), id)
}
