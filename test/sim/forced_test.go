package sim

import (
	"testing"
	"time"
)

// A server that is forced has heard of later leaders in group 1 alone. What it acknowledges as a cluster of its own
// is later than what these have written there: it is kept when the server is forced again.
func TestAServerIsForcedThatLagsInGroup0(t *testing.T) {
	inMostRuns(t, "it is forced twice", func(o *Options) { o.Servers, o.Partitions, o.Force = 3, 2, true }, (*cluster).forceTwice)
}

// forceTwice reports whether the server acknowledged a write in between.
func (c *cluster) forceTwice() bool {
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	behind, other := c.servers[leader.id%3], c.servers[(leader.id+1)%3]
	c.net.withholds = func(to *server, m message) bool { return m.raft != nil && m.group == 0 && to == behind }
	for range 3 {
		for _, next := range []*server{other, leader} {
			c.leader().life.core.replica.TransferAll(next.id)
			if !c.waitFor(calmAfter, next.life.core.replica.Leading) {
				return false
			}
		}
	}
	key := c.keyIn(leader.life.core, 1)
	if !c.puts(leader, key) || !c.waitFor(calmAfter, func() bool { return behind.last(1) == leader.last(1) }) {
		return false
	}
	c.net.withholds = nil
	c.plan.flush = 10 * time.Second // its state has nothing of all this
	c.leaveAlone(behind, (*server).kill)
	behind.start()
	if !c.waitFor(calmAfter, func() bool { return c.isAlone(behind) }) {
		c.fail("liveness", "a server that was forced is not a cluster of its own")
		return false
	}
	acknowledged := c.puts(behind, key)
	behind.kill()
	behind.start()
	c.goesOn(behind)
	return acknowledged
}
