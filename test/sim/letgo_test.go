package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/membership"
)

// Of four members one is removed. In the moment in which its removal has settled, the leader is lost for
// good, and the others lose their power: they may not have heard that the removal is committed, and
// must not need the vote of the one that was let go.
func TestThoseThatStayNeedNoVoteOfTheOneThatLeft(t *testing.T) {
	for _, partitions := range []int{1, 2, 4} {
		for seed := range uint64(max(4, *runs/4)) {
			o := options(t, seed)
			o.Servers, o.Partitions, o.Members = 4, partitions, true
			o.script = func(c *cluster) { c.letGo(seed%2 == 0) }
			r := Run(o)
			require.NoError(t, r.Failure, "%d partitions, seed %d", partitions, seed)
			require.Equal(t, 1, r.Stats.Strikes)
		}
	}
}

// letGo removes a member, strikes once that has settled, and waits for another leader.
func (c *cluster) letGo(leads bool) {
	for _, s := range c.servers {
		s.start()
	}
	leading := func() bool { l := c.leader().life; return l != nil && l.core.replica.Leading() }
	if !c.waitFor(calmAfter, leading) {
		c.fail("liveness", "there is no leader")
		return
	}
	c.until(200 * time.Millisecond)
	leader := c.leader()
	asked, id := leader.life.core, leader.id
	if !leads {
		id = id%4 + 1
	}
	generation := asked.machine.Membership().Generation + 1
	asked.changeMembers(changeOf(membership.Remove, id), func(error) {})
	settled := func() bool {
		for _, s := range c.servers {
			if s.life != nil && s.life.core.replica.Settled() >= generation {
				return true
			}
		}
		return false
	}
	end := c.loop.now + equalAfter
	c.loop.runUntil(end, func() bool { return c.failed() || settled() })
	if !settled() {
		c.fail("liveness", "the removal of member %d never settles", id)
		return
	}
	c.strike(c.leader().life.core.machine.Membership().Voters(), id)
	if !c.waitFor(equalAfter, leading) {
		c.fail("liveness", "member %d was let go, another was lost, and the two that are left have no leader", id)
	}
}
