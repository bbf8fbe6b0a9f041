package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/membership"
)

// In the moment in which a change of the voters has settled, a minority of the present ones is lost for
// good, the leader among it, and the others lose their power: they may not have heard that the change is
// committed, and must not need votes of those before.
func TestAMajorityIsEnoughOnceAChangeHasSettled(t *testing.T) {
	for _, at := range []struct {
		name    string
		members int
		ops     []membership.Op // the last is put to the test
	}{
		{"4 become 3", 4, []membership.Op{membership.Remove}},
		{"3 become 2", 3, []membership.Op{membership.Remove}},
		{"5 become 4", 5, []membership.Op{membership.Remove}},
		{"2 become 3", 2, []membership.Op{membership.Add}},
		{"2 become 3 by promotion", 2, []membership.Op{membership.AddLearner, membership.Promote}},
		{"3 become 4", 3, []membership.Op{membership.Add}},
		{"3 become 4 by promotion", 3, []membership.Op{membership.AddLearner, membership.Promote}},
		{"4 become 5", 4, []membership.Op{membership.Add}},
		{"4 become 5 by promotion", 4, []membership.Op{membership.AddLearner, membership.Promote}},
	} {
		t.Run(at.name, func(t *testing.T) {
			for _, partitions := range []int{1, 2, 4} {
				for seed := range uint64(max(4, *runs/4)) {
					o := options(t, seed)
					o.Servers, o.Partitions, o.Members = at.members, partitions, true
					o.script = func(c *cluster) { c.changeAndStrike(at.ops, seed%2 == 0) }
					r := Run(o)
					require.NoError(t, r.Failure, "%d partitions, seed %d", partitions, seed)
					require.Equal(t, 1, r.Stats.Strikes)
				}
			}
		})
	}
}

// changeAndStrike makes changes of one server, strikes once the last has settled, and waits for another leader.
func (c *cluster) changeAndStrike(ops []membership.Op, leads bool) {
	for _, s := range c.servers {
		s.start()
	}
	leading := func() bool { l := c.leader().life; return l != nil && l.core.replica.Leading() }
	if !c.waitFor(calmAfter, leading) {
		c.fail("liveness", "there is no leader")
		return
	}
	c.until(200 * time.Millisecond)
	var change membership.Change
	for _, op := range ops {
		id := c.leader().id
		switch {
		case op == membership.Promote:
			id = c.servers[len(c.servers)-1].id
		case op != membership.Remove:
			id = c.addServer().id
		case !leads:
			id = id%uint64(len(c.servers)) + 1
		}
		change = changeOf(op, id)
		if !c.settles(change) {
			c.fail("liveness", "the change %v of member %d never settles", op, id)
			return
		}
	}
	c.strike(c.leader().life.core.machine.Membership(), change)
	if !c.waitFor(equalAfter, leading) {
		c.fail("liveness", "the change %v of member %d has settled, a minority was lost, and the majority that is left has no leader",
			change.Op, change.Member.GetID())
	}
}

// settles asks the leader for a change, and waits until a server knows that it has settled.
func (c *cluster) settles(change membership.Change) bool {
	asked := c.leader().life.core
	generation := asked.machine.Membership().Generation + 1
	asked.changeMembers(change, func(error) {})
	settled := func() bool {
		for _, s := range c.servers {
			if s.life != nil && s.life.core.replica.Settled() >= generation {
				return true
			}
		}
		return false
	}
	c.loop.runUntil(c.loop.now+equalAfter, func() bool { return c.failed() || settled() })
	return settled()
}
