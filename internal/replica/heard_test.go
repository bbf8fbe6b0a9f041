package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/membership"
)

// A server that has a step in its log, and hasn't heard of its commit, gives it to Raft once a request for a vote says that
// this very log is committed as far, and for nothing else. When it hears of the commit from the leader, too, that changes nothing.
func TestAStepIsHeardOf(t *testing.T) {
	s := newStory(t, 5)
	leader, lags := s.replicas[0], s.replicas[1]
	s.elect(leader)
	g := lags.groups[1]
	voters := func() int { return len(g.node.Status().Config.Voters.IDs()) }

	s.change(leader, membership.Remove, 5)
	for i := 0; i < 200 && g.log.LastStep() <= g.commit.Load(); i++ {
		for _, r := range s.replicas {
			s.work(r, -1)
		}
		s.carry(true, 0, 0, -1)
	}
	step := g.log.LastStep()
	require.Greater(t, step, g.commit.Load())
	term, err := g.log.Term(step)
	require.NoError(t, err)
	hear := func(kind raftpb.MessageType, commit, term uint64) int {
		g.turn(func() { g.hearCommit(&raftpb.Message{Type: &kind, Commit: &commit, RejectHint: &term}) })
		return voters()
	}
	require.Equal(t, 5, hear(raftpb.MsgPreVote, step, term+1), "of another log")
	require.Equal(t, 5, hear(raftpb.MsgPreVote, step+1, term), "of a longer log")
	require.Equal(t, 5, hear(raftpb.MsgPreVote, step-1, term), "of what is in front of the step")
	require.Equal(t, 5, hear(raftpb.MsgPreVote, 0, 0), "of an earlier release")
	require.Equal(t, 5, hear(raftpb.MsgHeartbeat, step, term))
	require.Equal(t, 4, hear(raftpb.MsgPreVote, step, term))
	require.Equal(t, 4, hear(raftpb.MsgVote, step, term))

	for range 60 {
		leader.Tick()
		s.quiesce()
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, lags.cfg.Machine.Configuration(1).Voters)
	require.Equal(t, 4, voters())
	m := &raftpb.Message{Type: new(raftpb.MsgVote)}
	g.tellCommit(m)
	require.Equal(t, g.commit.Load(), m.GetCommit())
}

// A step that is committed, and whose turn hasn't come because an apply in front of it takes long, isn't passed over when
// the next one is heard of: Raft gets both.
func TestAStepIsHeardOfBehindAnother(t *testing.T) {
	s := newStory(t, 5)
	leader, lags := s.replicas[0], s.replicas[1]
	s.elect(leader)
	g := lags.groups[1]
	goOn := func(done func() bool) {
		for i := 0; i < 400 && !done(); i++ {
			for _, r := range s.replicas {
				if r != lags {
					s.work(r, -1)
				}
			}
			s.work(lags, 0)
			g.turn(g.step) // and no apply
			s.carry(true, 0, 0, -1)
			if i%20 == 0 {
				leader.Tick()
			}
		}
		require.True(t, done())
	}
	voters := func() int { return len(g.node.Status().Config.Voters.IDs()) }

	s.change(leader, membership.Remove, 5)
	goOn(func() bool {
		return g.stepping == 1 && membership.Sealed(leader.cfg.Machine.Membership(), leader.cfg.Machine.Configurations())
	})
	first := g.log.LastStep()
	s.change(leader, membership.Remove, 4)
	goOn(func() bool { return g.log.LastStep() > first && g.log.LastStep() > g.commit.Load() })
	require.Equal(t, 5, voters())

	step := g.log.LastStep()
	term, err := g.log.Term(step)
	require.NoError(t, err)
	g.turn(func() { g.hearCommit(&raftpb.Message{Type: new(raftpb.MsgPreVote), Commit: &step, RejectHint: &term}) })
	require.Equal(t, 3, voters())

	for range 60 {
		leader.Tick()
		s.quiesce()
	}
	require.Equal(t, []uint64{1, 2, 3}, lags.cfg.Machine.Configuration(1).Voters)
	require.Equal(t, 3, voters())
}
