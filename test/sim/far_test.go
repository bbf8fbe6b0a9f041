package sim

import (
	"testing"
	"time"

	"github.com/stoa-kv/stoa/internal/membership"
)

// Servers are so far from each other that an answer takes several ticks. The leader hands its groups over while clients
// write, and while a follower has to catch up: the next attempt to stamp must not end that.

func TestAFarLeaderIsMoved(t *testing.T) {
	inFarRuns(t, func(leader, other *server) { leader.life.core.replica.TransferAll(other.id) })
}

func TestAFarLeaderIsRemoved(t *testing.T) {
	inFarRuns(t, func(leader, _ *server) {
		leader.life.core.changeMembers(changeOf(membership.Remove, leader.id), func(error) {})
	})
}

// inFarRuns has one of two servers lead, and asks for the other one to lead.
func inFarRuns(t *testing.T, ask func(leader, other *server)) {
	for _, partitions := range []int{1, 3} {
		of := func(o *Options) { o.Servers, o.Partitions, o.Members = 2, partitions, true }
		inMostRuns(t, "the other server leads", of, func(c *cluster) bool {
			c.plan.delay, c.plan.lateOneIn, c.plan.loseOneIn = 15*time.Millisecond, 1<<30, 1<<30
			if !c.beginIdle() {
				return false
			}
			leader := c.leader()
			ask(leader, c.servers[leader.id%uint64(len(c.servers))])
			return c.leadsUnderLoad(leader)
		})
	}
}

// leadsUnderLoad waits until another server leads than the one before, which gets writes until then.
func (c *cluster) leadsUnderLoad(before *server) bool {
	cl := c.clientOf(before)
	for c.loop.now < 20*time.Second && c.failure == nil {
		if cl.current == nil && before.life != nil {
			cl.send(c.putSingle())
		}
		if now := c.leader(); now != before && now.life != nil && now.life.core.replica.Leading() {
			return true
		}
		c.until(5 * time.Millisecond)
	}
	c.fail("liveness", "server %d still leads", before.id)
	return false
}
