package sim

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/membership"
)

// A leader finds that a lease has run out while its groups follow a change of members, and keeps the revocation back. It is
// cut off, the next leader gives the lease its time again, and renews it for a client. What the first one had
// decided has no effect any more.
func TestARevocationOfALeaderOfBefore(t *testing.T) {
	inMostRuns(t, "the lease is renewed by the next leader", func(o *Options) { o.Servers, o.Partitions, o.Members = 3, 2, true }, (*cluster).revokeLate)
}

// revokeLate reports whether that is how it went.
func (c *cluster) revokeLate() (met bool) {
	const id = 1 << 20
	if !c.beginIdle() {
		return false
	}
	leader := c.leader()
	core := leader.life.core
	granted := c.loop.now
	if !c.asks(leader, strictly(&pb.LeaseGrantRequest{ID: id, TTL: 1})) {
		return false
	}
	c.until(granted + 800*time.Millisecond - c.loop.now)
	next := c.succeeded(leader, func() bool {
		return c.waitFor(time.Second, func() bool { return c.stats.Expired > 0 }) && core.replica.Leading()
	})
	if next == nil {
		return false
	}
	met = c.asks(next, request{message: &pb.LeaseKeepAliveRequest{ID: id}})
	c.net.heal()
	c.until(500 * time.Millisecond)
	c.finish()
	return met
}

// succeeded has a leader act while its groups can't follow a change of members, cuts it off, and returns the next one.
func (c *cluster) succeeded(leader *server, act func() bool) *server {
	core := leader.life.core
	at := stepsOf{core, core.machine.Membership().Generation}
	core.changeMembers(changeOf(membership.AddLearner, c.addServer().id), func(error) {})
	if !c.waitFor(time.Second, func() bool { return at.c.machine.Membership().Generation > at.before }) {
		return nil
	}
	c.net.withholds = func(to *server, m message) bool {
		return to == leader && m.raft != nil && m.raft.GetType() == raftpb.MsgAppResp
	}
	if !act() {
		return nil
	}
	for _, s := range c.servers {
		if s != leader {
			c.net.setCut(c.net.link(s.id, leader.id), true)
			c.net.setCut(c.net.link(leader.id, s.id), true)
		}
	}
	c.net.withholds = nil
	next := func() *server {
		for _, s := range c.servers {
			if s != leader && s.life != nil && s.life.core.replica.Leading() {
				return s
			}
		}
		return nil
	}
	if !c.waitFor(calmAfter, func() bool { return next() != nil }) {
		c.fail("liveness", "no other leads")
	}
	return next()
}
