package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

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

	body, err := (&membership.Change{Op: membership.Remove, Member: &pb.Member{ID: 4}}).Encode()
	require.NoError(t, err)
	leader.Submit(&Write{
		Command: command.Command{Kind: command.MemberChange, Body: body}, Parts: leader.cfg.Map.All(), System: true,
		Done: func(Outcome) {},
	})
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
