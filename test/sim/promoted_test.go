package sim

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/membership"
)

// A learner is promoted, and has the longest log of group 0, the step that makes it a voter in it. It hasn't heard that the
// step is committed; another member has, and the leader is lost for good. The three that are left are needed, all of them: the one that
// has heard of it asks for three votes of four, and the promoted one gives none to a shorter log.
func TestThePromotedOneHasTheLongestLog(t *testing.T) {
	inMostRuns(t, "the promoted one has the longest log", func(o *Options) { o.Servers, o.Partitions, o.Members = 3, 2, true }, (*cluster).promotedHasMore)
}

// promotedHasMore reports whether that is how it went.
func (c *cluster) promotedHasMore() (met bool) {
	c.plan.loseOneIn = 1 << 30
	if !c.beginIdle() {
		return false
	}
	leader, learner := c.leader(), c.addServer()
	core, others := leader.life.core, slices.DeleteFunc(slices.Clone(c.servers[:3]), func(s *server) bool { return s == leader })
	knows, lags := others[0], others[1]
	core.changeMembers(changeOf(membership.AddLearner, learner.id), func(error) {})
	learner.start()
	joined := func() bool {
		return membership.Sealed(core.machine.Membership(), learner.life.core.machine.Configurations()) && learner.last(0) == leader.last(0)
	}
	if !c.waitFor(calmAfter, joined) || !core.replica.Leading() {
		return false
	}
	key, step := c.keyIn(core, 0), uint64(0)
	votes := func(s *server) bool { return slices.Contains(s.life.core.machine.Configuration(0).Voters, learner.id) }
	c.net.withholds = func(to *server, m message) bool {
		switch {
		case step == 0 || m.raft == nil || m.group != 0:
			return false
		case to == leader: // until what is behind the step has been sent
			return m.raft.GetType() == raftpb.MsgAppResp && learner.last(0) <= step
		case to == learner:
			return m.raft.GetCommit() >= step
		}
		return m.raft.GetType() == raftpb.MsgApp && (to == lags || m.raft.GetIndex() >= step)
	}
	at := stepsOf{core, core.machine.Membership().Generation}
	core.changeMembers(changeOf(membership.Promote, learner.id), func(error) {})
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { return c.failed() || at.proposed(0) })
	step = core.logs[0].LastStep()
	c.clientOf(leader).send(putsAtOnce(key))
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { return c.failed() || learner.last(0) > step && votes(knows) })
	met = learner.last(0) > step && knows.last(0) == step && votes(knows) && !votes(learner)
	c.losesMember(leader)
	c.net.withholds = nil
	c.completes()
	return met
}
