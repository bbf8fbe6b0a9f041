package sim

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// A server has not executed a change of the number of partitions, and has in one log, behind it, what the next
// generation of groups has written, also such as concerns groups that the server hasn't.

// It leads the groups of its generation, after the leader was lost: it goes on to the next one before it completes what that wrote.
func TestALeaderOfAGenerationThatHasEnded(t *testing.T) {
	inMostRuns(t, "it leads the groups of its generation", func(o *Options) { o.Servers, o.Partitions, o.Members = 3, 2, true }, func(c *cluster) (met bool) {
		behind := c.leftInAGenerationThatHasEnded()
		if behind == nil {
			return false
		}
		leads := func(group int) bool { return behind.life.core.replica.Standing(group).Leader == behind.id }
		c.losesMember(c.leader())
		c.net.withholds = func(_ *server, m message) bool { // group 1 could go on as soon as it has a leader
			return m.raft != nil && m.raft.GetType() == raftpb.MsgPreVote && (m.raft.GetFrom() != behind.id || m.group == 1 && !leads(0))
		}
		c.loop.runUntil(c.loop.now+calmAfter, func() bool {
			met = len(behind.life.core.stores) == 2 && leads(0) && leads(1)
			return c.failed() || met
		})
		c.net.withholds = nil
		behind.life.receiving = false
		c.finish()
		return met
	})
}

// It is forced: all of it is kept.
func TestAServerIsForcedInAGenerationThatHasEnded(t *testing.T) {
	inMostRuns(t, "it is forced", func(o *Options) { o.Servers, o.Partitions, o.Force = 3, 2, true }, func(c *cluster) bool {
		behind := c.leftInAGenerationThatHasEnded()
		if behind == nil {
			return false
		}
		c.net.withholds = nil
		c.leaveAlone(behind, (*server).kill)
		behind.start()
		c.goesOn(behind)
		return true
	})
}

// leftInAGenerationThatHasEnded returns such a server, or nil if something else has happened.
func (c *cluster) leftInAGenerationThatHasEnded() *server {
	if !c.beginIdle() {
		return nil
	}
	leader := c.leader()
	behind := c.servers[leader.id%uint64(len(c.servers))]
	behind.life.receiving = true // nobody's state can help it
	known, _ := behind.life.core.replica.Progress(1)
	c.net.withholds = func(to *server, m message) bool { // it hears of no commit in group 1
		if m.raft != nil && m.group == 1 && to == behind {
			m.raft.Commit = new(min(known, m.raft.GetCommit()))
		}
		return false
	}
	grown := func() bool { // and some keys are in the group that is new
		core := leader.life.core
		return len(core.stores) == 3 && core.replica.Leading() && core.machine.Placement().Transit() == nil
	}
	if !c.carriesOut(leader, command.Resize, command.AppendResize(nil, 3)) || !c.waitFor(calmAfter, grown) {
		return nil
	}
	c.clientOf(leader).send(putsAtOnce(c.keyIn(leader.life.core, 0), c.keyIn(leader.life.core, 2)))
	written := func(e *raftpb.Entry) bool { return carries(e, command.Txn) }
	if !c.waitFor(calmAfter, func() bool {
		core := behind.life.core
		return len(core.stores) == 2 && (stepsOf{c: core}).holds(0, written) &&
			behind.last(0) == leader.last(0) && behind.last(1) == leader.last(1)
	}) {
		return nil
	}
	return behind
}
