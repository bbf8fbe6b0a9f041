package sim

import (
	"testing"
	"time"

	"github.com/stoa-kv/stoa/internal/membership"
)

// Servers are so far from each other that an answer takes several ticks. The leader hands its groups over while clients
// write, and while a follower has to catch up: the next attempt to stamp must not end that.

func TestAFarLeaderIsMoved(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		inMostRuns(t, "another server leads", far(partitions), func(c *cluster) bool {
			leader, to, ok := c.beginFar()
			if !ok {
				return false
			}
			leader.life.core.replica.TransferAll(to.id)
			return c.leadsUnderLoad(leader, to)
		})
	}
}

func TestAFarLeaderIsRemoved(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		inMostRuns(t, "the leader has been let go", far(partitions), func(c *cluster) bool {
			leader, _, ok := c.beginFar()
			if !ok {
				return false
			}
			leader.life.core.changeMembers(changeOf(membership.Remove, leader.id), func(error) {})
			return c.leadsUnderLoad(leader, nil)
		})
	}
}

func far(partitions int) func(*Options) {
	return func(o *Options) { o.Servers, o.Partitions, o.Members = 2, partitions, true }
}

// beginFar begins with two servers, one of which leads.
func (c *cluster) beginFar() (leader, other *server, ok bool) {
	c.plan.delay, c.plan.lateOneIn, c.plan.loseOneIn = 15*time.Millisecond, 1<<30, 1<<30
	if !c.beginIdle() {
		return nil, nil, false
	}
	leader = c.leader()
	return leader, c.servers[leader.id%uint64(len(c.servers))], true
}

// leadsUnderLoad waits until another server than the one before leads, which gets writes until then.
func (c *cluster) leadsUnderLoad(before, to *server) bool {
	cl := c.clientOf(before)
	for c.loop.now < 20*time.Second && c.failure == nil {
		if cl.current == nil && before.life != nil {
			cl.send(c.putSingle())
		}
		if now := c.leader(); now != before && (to == nil || now == to) && now.life != nil && now.life.core.replica.Leading() {
			return true
		}
		c.until(5 * time.Millisecond)
	}
	c.fail("liveness", "server %d still leads", before.id)
	return false
}
