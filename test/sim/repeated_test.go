package sim

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
)

// A lease runs out while the log stands still, and its leader has it revoked more than once. Behind the first revocation
// another lease is granted with the same ID: it doesn't end with those that come behind.
func TestARevocationThatIsRepeated(t *testing.T) {
	inMostRuns(t, "two revocations are under way", func(o *Options) { o.Servers, o.Partitions = 3, 2 }, (*cluster).revokeTwice)
}

func (c *cluster) revokeTwice() (met bool) {
	const id = 1 << 20
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	grant := func(ttl int64) *op { return c.clientOf(leader).send(strictly(&pb.LeaseGrantRequest{ID: id, TTL: ttl})) }
	first := grant(1)
	if !c.waitFor(clientTimeout, func() bool { return first.state != open }) || first.state != ok {
		return false
	}
	c.net.withholds = func(to *server, m message) bool {
		return to == leader && m.raft != nil && m.raft.GetType() == raftpb.MsgAppResp
	}
	revoked := func(times int) func() bool {
		return func() bool { return c.stats.Expired >= times }
	}
	if !c.waitFor(3*time.Second, revoked(1)) {
		return false
	}
	c.until(2 * time.Second) // it is said again after three
	second := grant(60)
	if !c.waitFor(2*time.Second, revoked(2)) || second.state != open || !leader.life.core.replica.Leading() {
		return false
	}
	c.net.withholds = nil
	c.waitFor(clientTimeout, func() bool { return second.state != open })
	met = second.state == ok
	c.until(time.Second)
	if _, is := leader.life.core.leases.Get(id); met && !is {
		c.fail("lease", "the second lease ended with the first")
	}
	c.finish()
	return met
}
