package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
)

// Of four servers one is removed, and the leader is lost. Server 2 knows that group 0 has let it go, and
// lacks all of that in group 1; server 3 knows that group 1 has, and lacks all in group 0. Each has the only log
// with which its group can be led, and waits at the rendezvous that decided the change for the other one's.
func TestGroupsAreLedThoughTheyWaitForEachOther(t *testing.T) {
	s := newStory(t, 4)
	leader := s.replicas[0]
	s.elect(leader)

	s.change(leader, membership.Remove, 4)
	lags := map[int]uint64{0: 3, 1: 2} // which server hears nothing of a group
	for range 4 {
		for range 50 {
			for _, r := range s.replicas {
				s.work(r, -1)
			}
			for group, id := range lags {
				s.carry(false, 0, id, group)
			}
			s.carry(true, 0, 0, -1)
		}
		leader.Tick() // it tells how far it has committed
	}
	for group, server := range map[int]int{0: 2, 1: 3} {
		g := s.replicas[server-1].groups[group]
		require.True(t, g.blocked)
		require.Equal(t, 1, min(1, g.stepping), "server %d doesn't know that group %d has followed", server, group)
		require.EqualValues(t, 0, s.replicas[server-1].cfg.Machine.Membership().Generation)
	}

	s.wire = nil
	s.dead[1], s.dead[4] = true, true
	stay := s.replicas[1:3]
	for range 60 {
		for _, r := range stay {
			r.Tick()
		}
		s.quiesce()
	}
	require.True(t, stay[0].Leading() || stay[1].Leading(), "a majority of the three members has no leader")
	for _, r := range stay {
		require.EqualValues(t, 1, r.cfg.Machine.Membership().Generation)
		require.True(t, membership.Sealed(r.cfg.Machine.Membership(), r.cfg.Machine.Configurations()))
		require.Equal(t, []uint64{1, 2, 3}, r.cfg.Machine.Configuration(0).Voters)
	}
}

// Of five servers that become six, server 2 knows that group 1 has followed, and waits for group 0. Its Raft goes
// on without the newcomer until a second change is in the log behind, and no longer.
func TestRaftIsOneConfigurationBehindTheLogAtMost(t *testing.T) {
	s := newStory(t, 5)
	leader, lags := s.replicas[0], s.replicas[1]
	s.dead[6] = true // it isn't started yet
	s.elect(leader)
	voters := func() map[uint64]struct{} { return lags.groups[1].node.Status().Config.Voters.IDs() }

	s.change(leader, membership.Add, 6)
	s.goOnWithout(lags, 0)
	require.True(t, lags.groups[1].blocked)
	require.NotNil(t, lags.groups[1].held)
	require.Len(t, voters(), 5)
	require.True(t, membership.Sealed(leader.cfg.Machine.Membership(), leader.cfg.Machine.Configurations()))

	s.change(leader, membership.Remove, 5)
	s.goOnWithout(lags, 0)
	require.Nil(t, lags.groups[1].held)
	require.Contains(t, voters(), uint64(6))
	require.EqualValues(t, 0, lags.cfg.Machine.Membership().Generation)

	// Its state, of before the change, is none to begin with for the newcomer.
	s.said.Reset()
	lags.groups[1].send(&raftpb.Message{Type: new(raftpb.MsgSnap), To: new(uint64(6))})
	require.NotContains(t, s.said.String(), "needs a snapshot")
	lags.groups[1].send(&raftpb.Message{Type: new(raftpb.MsgSnap), To: new(uint64(3))})
	require.Contains(t, s.said.String(), "3 needs a snapshot")

	for range 60 {
		leader.Tick()
		s.quiesce()
	}
	require.Equal(t, leader.cfg.Machine.Configurations(), lags.cfg.Machine.Configurations())
	require.Len(t, voters(), 5)
	require.NotContains(t, voters(), uint64(5))
}

// change asks a server for a change of one member.
func (s *story) change(r *Replica, op membership.Op, id uint64) {
	body, err := (&membership.Change{Op: op, Member: &pb.Member{ID: id}}).Encode()
	require.NoError(s.t, err)
	r.Submit(&Write{
		Command: command.Command{Kind: command.MemberChange, Body: body}, Parts: r.cfg.Machine.Placement().All(), System: true,
		Done: func(Outcome) {},
	})
}

// goOnWithout lets time go on, while one server hears nothing of one group.
func (s *story) goOnWithout(lags *Replica, group int) {
	for range 4 {
		for range 50 {
			for _, r := range s.replicas {
				s.work(r, -1)
			}
			for _, g := range lags.groups {
				require.False(s.t, g.held != nil && g.log.LastStep() > g.held.index, "Raft is two configurations behind the log")
			}
			s.carry(false, 0, lags.cfg.ID, group)
			s.carry(true, 0, 0, -1)
		}
		s.replicas[0].Tick() // it tells how far it has committed
	}
}
