package sim

import (
	"testing"
	"time"

	"github.com/stoa-kv/stoa/internal/membership"
)

// Of two members one is removed, and has in group 0's log what the other one loses with its power: writes behind the
// step that lets it go. The other one comes back with the step, of which it doesn't know that it is committed, and
// needs the vote of the removed one, which has the longer log.
func TestTheRemovedOneHasTheLongerLog(t *testing.T) {
	inMostRuns(t, "the removed one has the longer log", func(o *Options) { o.Servers, o.Partitions, o.Members = 2, 2, true }, (*cluster).removedHasMore)
}

// removedHasMore reports whether that is how it went.
func (c *cluster) removedHasMore() (met bool) {
	c.clients, c.sessions = nil, nil
	c.plan.flush = 10 * time.Second // the file has nothing of this
	c.plan.loseOneIn = 1 << 30
	if !c.begin() {
		return false
	}
	c.hush()
	stays := c.leader()
	leaves := c.servers[stays.id%2]
	core := stays.life.core
	key, cl := c.keyIn(core, 0), c.clientOf(stays)
	last := func(s *server) uint64 {
		index, _ := s.life.core.logs[0].LastIndex()
		return index
	}
	at := stepsOf{core, core.machine.Membership().Generation}
	core.changeMembers(changeOf(membership.Remove, leaves.id), func(error) {})
	step := uint64(0)
	c.loop.runUntil(c.loop.now+calmAfter, func() bool {
		step = core.logs[0].LastStep()
		return c.failed() || at.proposed(0)
	})
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { return c.failed() || core.disk.finishWrite != nil })
	stays.slowDisk = time.Second // from the next sync on
	cl.send(putsAtOnce(key))
	c.loop.runUntil(c.loop.now+calmAfter, func() bool {
		return c.failed() || !leaves.life.core.machine.Configuration(0).Has(leaves.id) && last(leaves) > step
	})
	stays.powerOff()
	stays.slowDisk = 0
	if c.loop.chance(2) { // its state has the step, then
		if !c.await(func(done func(error)) { leaves.life.core.flush(func() { done(nil) }) }) {
			return false
		}
		leaves.kill()
		leaves.start()
	}
	stays.start()
	met = last(stays) == step && last(leaves) > step
	c.completes()
	return met
}
