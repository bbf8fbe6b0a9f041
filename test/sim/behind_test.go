package sim

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
)

// A write to two groups comes behind a change of members and before that is carried out, and is in one group's log when
// the leader is lost. That group has not followed: a step behind the write would have kept it from having another
// leader, who completes the write, where Raft waits for the state with the step (M2 of package membership).
func TestAWriteBehindAChangeOfMembers(t *testing.T) {
	inMostRuns(t, "the leader carries out the change, and the write is in one group's log", func(o *Options) { o.Servers, o.Partitions, o.Members = 3, 3, true }, (*cluster).writeBehindAChange)
}

// writeBehindAChange reports whether that is how it went.
func (c *cluster) writeBehindAChange() (met bool) {
	if !c.beginIdle() { // another write could be in both logs
		return false
	}
	leader := c.leader()
	core := leader.life.core
	uncommitted := func(to *server, m message) bool { // in group 0
		return m.raft != nil && m.group == 0 && to == leader && m.raft.GetType() == raftpb.MsgAppResp
	}
	unsent := func(m message) bool { return m.raft != nil && m.group == 2 && m.raft.GetType() == raftpb.MsgApp }

	c.net.withholds = uncommitted
	newcomer := c.addServer()
	newcomer.due = true // it isn't started before it is in a list
	core.changeMembers(changeOf(membership.AddLearner, newcomer.id), func(error) {})
	if !c.waitFor(time.Second, func() bool { return core.isAt(1, command.MemberChange) && core.isAt(2, command.MemberChange) }) {
		return false
	}
	c.net.withholds = func(to *server, m message) bool { return uncommitted(to, m) || unsent(m) }
	c.clientOf(leader).send(putsAtOnce(c.keyIn(core, 1), c.keyIn(core, 2)))
	has := func(group int) (n int) { // of the others
		for _, s := range c.servers {
			if s.life != nil && s != leader && (stepsOf{c: s.life.core}).holds(group, func(e *raftpb.Entry) bool { return carries(e, command.Txn) }) {
				n++
			}
		}
		return n
	}
	if !c.waitFor(time.Second, func() bool { return has(1) == 2 }) {
		return false
	}
	c.net.withholds = func(_ *server, m message) bool { return unsent(m) }
	c.waitFor(time.Second, func() bool { return core.machine.Membership().Generation > 0 })
	c.until(50 * time.Millisecond)
	met = core.replica.Leading() && core.machine.Membership().Generation > 0 && has(1) == 2 && has(2) == 0
	c.losesMember(leader)
	c.net.withholds = nil
	newcomer.due = false
	c.completes()
	return met
}
