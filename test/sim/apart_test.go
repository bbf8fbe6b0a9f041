package sim

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Each of two servers has entries of one group that the other lacks, in its file alone if logs are shortened as far as
// files go. The third, from which both had them, is lost. A state that one sends to the other would take
// that one back in the group in which it is ahead: they can only help each other with their logs.
func TestEachIsAheadInOneGroup(t *testing.T) {
	inMostRuns(t, "each is ahead in one group", func(o *Options) { o.Servers, o.Partitions = 3, 2 }, (*cluster).aheadInOneGroupEach)
}

// aheadInOneGroupEach reports whether that is how it went.
func (c *cluster) aheadInOneGroupEach() (met bool) {
	c.keeper = nil
	c.plan.tail, c.plan.held, c.plan.flush = 1, 0, time.Hour // logs are short, and files written when the script says so
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	first, second := c.servers[leader.id%3], c.servers[(leader.id+1)%3]
	keys := []string{c.keyIn(leader.life.core, 0), c.keyIn(leader.life.core, 1)}
	if !c.puts(leader, keys...) || !c.waitFor(calmAfter, c.equal) {
		return false
	}
	lacks := []*server{second, first} // of each group
	c.net.withholds = func(to *server, m message) bool {
		return m.raft != nil && m.raft.GetType() == raftpb.MsgApp && to == lacks[m.group]
	}
	for group, key := range keys {
		if !c.puts(leader, key, key, key) {
			return false
		}
		has, lacks := lacks[1-group], lacks[group]
		if !c.waitFor(calmAfter, func() bool {
			_, applied := has.life.core.replica.Progress(group)
			return applied >= lacks.last(group)+3
		}) {
			return false
		}
	}
	for _, s := range c.servers {
		s.life.core.flush(func() {})
	}
	c.until(time.Second)
	if !leader.life.core.replica.Leading() {
		return false
	}
	leader.kill()
	c.net.withholds = nil
	if !c.waitFor(calmAfter, c.led) {
		c.fail("liveness", "nobody leads both groups")
		return true
	}
	leader.start()
	c.finish()
	return true
}
