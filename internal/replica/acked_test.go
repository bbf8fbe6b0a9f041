package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
)

// A follower acknowledges an entry, and not once more when it hears that the entry
// is committed.
func TestAcknowledgementsAreNotRepeated(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	for range 3 {
		s.put(s.replicas[0], "a")
		acks := map[uint64]int{}
		for done := false; !done; {
			for _, r := range s.replicas {
				s.work(r, -1)
			}
			for _, e := range s.wire {
				if e.raft != nil && e.raft.GetType() == raftpb.MsgAppResp {
					acks[e.from]++
				}
			}
			done = len(s.wire) == 0
			s.carry(true, 0, 0, -1)
		}
		require.Equal(t, map[uint64]int{2: 1, 3: 1}, acks)
	}
	require.Contains(t, s.said.String(), "put of a at 1: revision 4")
}

// A lost acknowledgement is repeated when the leader asks, a tick later; and at
// once where the follower knows that it may be lost.
func TestALostAcknowledgementIsRepeated(t *testing.T) {
	for name, later := range map[string]func(s *story){
		"a tick later": func(s *story) { s.replicas[1].Tick() },
		"link lost":    func(s *story) { s.replicas[1].Unreachable(1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, 3)
			s.elect(s.replicas[0])
			s.dead[3] = true
			s.put(s.replicas[0], "a")
			s.work(s.replicas[0], -1)
			s.carry(true, 1, 2, -1)
			s.work(s.replicas[1], -1)
			s.carry(false, 2, 1, -1)
			s.quiesce()
			require.NotContains(t, s.said.String(), "put of a")
			later(s)
			s.replicas[0].Tick()
			s.quiesce()
			require.Contains(t, s.said.String(), "put of a at 1: revision 2")
		})
	}
}
