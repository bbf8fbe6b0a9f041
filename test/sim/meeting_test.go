package sim

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A change without a stamp, as one of permissions, is executed by the group that comes to it last, and
// answered, while the loop of one that waits at it has no processor. A server that has not executed it answers no
// later read before it has: the commit index, or that of the rendezvous, is beyond what the loop has come past.
func TestAReadAfterAMeeting(t *testing.T) {
	inMostRuns(t, "the change isn't answered while a group waits at it", func(o *Options) { o.Servers, o.Partitions = 3, 2 }, (*cluster).readAfterAMeeting)
}

// readAfterAMeeting reports whether the read was made.
func (c *cluster) readAfterAMeeting() (met bool) {
	const role = "of a meeting"
	if !c.begin() {
		return false
	}
	c.hush() // a write that comes behind the change is waited for in any case
	c.until(2 * time.Second)
	leader, answered, held := c.leader(), false, true
	var err error
	behind := c.servers[leader.id%uint64(len(c.servers))]
	// Group 1 commits on no server before group 0 waits at the change on the leader, and never on the one behind.
	c.net.withholds = func(to *server, m message) bool {
		return m.raft != nil && m.group == 1 && m.raft.GetType() == raftpb.MsgApp && (held || to == behind)
	}
	leader.life.write(command.Auth, &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: role}}, c.own(), true,
		func(_ proto.Message, failed error) { answered, err = true, failed })
	if !c.waitFor(time.Second, func() bool { return leader.life.core.isAt(0, command.Auth) }) {
		return false // another leads
	}
	leader.life.core.stuck[0] = c.loop.now + 50*time.Millisecond
	held = false
	if !c.waitFor(calmAfter, func() bool { return answered }) {
		c.fail("liveness", "the change isn't answered")
		return false
	}
	if err != nil {
		return false // another leads
	}
	read := false
	behind.life.core.replica.ReadPoint(placement.Of(0), func(err error) {
		read = true
		if err == nil && behind.life.core.machine.Auth().Role(role) == nil {
			c.fail("linearizability", "a read after a change of permissions doesn't see it")
		}
	})
	c.until(200 * time.Millisecond)
	c.net.withholds = nil
	if !c.waitFor(calmAfter, func() bool { return read }) {
		c.fail("liveness", "the read isn't answered")
		return false
	}
	c.finish()
	return true
}
