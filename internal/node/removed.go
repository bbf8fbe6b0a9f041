package node

import (
	"slices"
	"time"

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

// leaveAfter is how long a server that was removed still answers: its client may wait to
// hear that it was.
const leaveAfter = time.Second

// noteRemoved ends this server once it has heard from the one that stamps that all groups have
// let it go, which that has on its disk by then. One that misses that is told by the others.
func (n *Node) noteRemoved(c *core) {
	list := c.machine.Membership()
	if c.joins() || list.Find(n.cfg.ID) != nil || c.replica.Settled() < list.Generation || n.leaving.Swap(true) {
		return
	}
	n.running.Go(func() {
		_ = n.pause(n.life, leaveAfter)
		n.removed("all groups have let it go")
	})
}

// refusedAsRemoved ends this server, which a peer refuses: all groups have let it go, and have sealed that (isRemoved). If it has executed its
// removal, a client may wait here for just that, which the one that stamps doesn't tell any more once it has cut its link. Any
// goroutine may call it.
func (n *Node) refusedAsRemoved() {
	c := n.core.Load()
	list := c.machine.Membership()
	if c.joins() || list.Find(n.cfg.ID) != nil {
		n.removed("a peer refuses this member")
		return
	}
	c.replica.Settle(list.Generation)
	n.noteRemoved(c)
}

// isRemoved reports whether a server was a member once and has been let go by all groups,
// which may still need its acknowledgements before.
func (n *Node) isRemoved(id uint64) bool {
	c := n.core.Load()
	return slices.Contains(c.machine.Membership().Removed, id) && !slices.Contains(c.replica.Peers(), id)
}
