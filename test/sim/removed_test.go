package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/membership"
)

// A member is removed, and has in group 0's log what all that stay lack: writes behind the step that lets it go. These lose their
// power, and come back with the step at most, of which they don't know that it is committed. They need the vote of
// the removed one, which has the longer log: of two members the one that is left, and of four two, once the leader is
// lost for good.
func TestTheRemovedOneHasTheLongerLog(t *testing.T) {
	for _, members := range []int{2, 4} {
		of := func(o *Options) { o.Servers, o.Partitions, o.Members = members, 2, true }
		// Of two members it has it in half of the runs.
		require.Greater(t, inRuns(t, 96, of, (*cluster).removedHasMore), 24, "runs in which the removed one has the longer log")
	}
}

// removedHasMore reports whether that is how it went.
func (c *cluster) removedHasMore() (met bool) {
	c.plan.flush = 10 * time.Second // no file has anything of this
	c.plan.loseOneIn = 1 << 30
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	leaves := c.servers[leader.id%uint64(len(c.servers))]
	stay := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s == leader || s == leaves })
	if len(stay) == 0 {
		stay = append(stay, leader)
	}
	core := leader.life.core
	key, cl := c.keyIn(core, 0), c.clientOf(leader)
	at, step := stepsOf{core, core.machine.Membership().Generation}, uint64(0)
	core.changeMembers(changeOf(membership.Remove, leaves.id), func(error) {})
	c.loop.runUntil(c.loop.now+calmAfter, func() bool {
		step = core.logs[0].LastStep()
		return c.failed() || at.proposed(0)
	})
	c.net.withholds = func(to *server, m message) bool { // what comes behind the step
		return to != leaves && to != leader && m.raft != nil && m.group == 0 && m.raft.GetType() == raftpb.MsgApp && m.raft.GetIndex() >= step
	}
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { return c.failed() || core.disk.finishWrite != nil })
	leader.slowDisk = time.Second // from the next sync on
	cl.send(putsAtOnce(key))
	c.loop.runUntil(c.loop.now+calmAfter, func() bool {
		return c.failed() || leaves.life == nil || !leaves.life.core.machine.Configuration(0).Has(leaves.id) && leaves.last(0) > step
	})
	if leaves.life == nil { // it knows that it has been removed
		return false
	}
	for _, s := range stay {
		s.powerOff()
	}
	if !slices.Contains(stay, leader) {
		c.losesMember(leader)
	}
	leader.slowDisk, c.net.withholds = 0, nil
	if c.loop.chance(2) { // its state has the step, then
		if !c.await(func(done func(error)) { leaves.life.core.flush(func() { done(nil) }) }) {
			return false
		}
		leaves.kill()
		leaves.start()
	}
	met = leaves.last(0) > step
	for _, s := range stay {
		s.start()
		met = met && s.last(0) <= step
	}
	c.completes()
	return met
}
