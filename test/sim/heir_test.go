package sim

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A server that is fenced has taken in the state of the leader, which then is killed before the next check. What is left
// is led by two: group 1 by the fenced one, whose log begins behind all that the leader of group 0 has of it.
// The fenced one sends no state, so neither can lead both. Once the third is back, it gets group 1.
func TestAFencedServerHandsItsGroupToWhoSends(t *testing.T) {
	inMostRuns(t, "two servers lead one group each", func(o *Options) { o.Servers, o.Partitions, o.Checks = 3, 2, true }, (*cluster).fencedKeepsAGroup)
}

// fencedKeepsAGroup reports whether that is how it went.
func (c *cluster) fencedKeepsAGroup() (met bool) {
	c.keeper = nil                                                // the state changes in a key that nobody reads
	c.plan.tail, c.plan.held, c.plan.flush = 1, 0, time.Second/50 // logs are short
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	others := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s == leader })
	fenced, lags := others[0], others[1]

	if !c.puts(leader, flippedKey+"s") || !c.waitFor(calmAfter, c.equal) {
		return false
	}
	fenced.life.core.flip()
	fenced.life.receiving = true // the state that it needs takes long
	if !c.waitFor(calmAfter, func() bool { return fenced.life.fence.Now() != nil }) || !leader.life.core.replica.Leading() {
		return false
	}
	c.net.withholds = func(to *server, m message) bool {
		return m.raft != nil && m.group == 1 && (to == lags || m.raft.GetFrom() == lags.id)
	}
	key := c.keyIn(leader.life.core, 1)
	if !c.puts(leader, key, key, key) || !c.waitFor(calmAfter, func() bool {
		first, err := leader.life.core.logs[1].FirstIndex()
		return err == nil && first > lags.last(1)+1
	}) {
		return false
	}
	fenced.life.receiving = false
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { f := fenced.life.fence.Now(); return c.failed() || f == nil || f.Healed })
	if fenced.life.fence.Now() == nil {
		return false
	}
	leader.kill()
	c.net.withholds = func(_ *server, m message) bool { // the fenced one is elected in group 1 alone
		return m.raft != nil && m.group == 0 && m.raft.GetFrom() == fenced.id && m.raft.GetType() == raftpb.MsgPreVote
	}
	leads := func(s *server, group int) bool { return s.life.core.replica.Standing(group).Leader == s.id }
	met = c.waitFor(calmAfter, func() bool { return leads(lags, 0) && leads(fenced, 1) })
	c.net.withholds = nil
	leader.start()
	if !c.waitFor(calmAfter, c.led) {
		c.fail("liveness", "nobody leads both groups")
		return met
	}
	c.finish()
	return met
}
