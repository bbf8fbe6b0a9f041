package sim

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/version"
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

// A lease was granted and revoked by its leader. A server that is forced has both in the log of group 1 alone, and so puts them elsewhere in that of
// group 0: it is the same lease, and revoked.
func TestALeaseThatAForcedServerLacksInGroup0(t *testing.T) {
	inMostRuns(t, "it has both in group 1 alone", func(o *Options) { o.Servers, o.Partitions, o.Force = 3, 2, true }, (*cluster).revokeBehind)
}

func (c *cluster) revokeBehind() (met bool) {
	const id = 1 << 20
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	behind := c.servers[leader.id%3]
	c.net.withholds = func(to *server, m message) bool { return m.raft != nil && m.group == 0 && to == behind }
	from := behind.last(0)
	granted := c.asks(leader, strictly(&pb.LeaseGrantRequest{ID: id, TTL: 1}))
	gone := func() bool { return !leader.life.core.leases.Has(id) }
	if !granted || !c.waitFor(calmAfter, gone) || !c.waitFor(calmAfter, func() bool { return behind.last(1) == leader.last(1) }) {
		return false
	}
	met = behind.last(0) == from && leader.life.core.machine.Level() >= version.Newest
	c.leaveAlone(behind, (*server).kill)
	c.net.withholds = nil
	behind.start()
	if !c.waitFor(calmAfter, func() bool { return c.isAlone(behind) }) {
		c.fail("liveness", "a server that was forced is not a cluster of its own")
		return false
	}
	if _, is := behind.life.core.leases.Get(id); met && is {
		c.fail("lease", "a lease is there again that was revoked")
	}
	c.goesOn(behind)
	return met
}
