package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
)

// A server hands its groups over, and another one than group 0 is the first to have a new
// candidate. The server has group 0 still, and must not campaign for the other again.
func TestTransferIsLeftAlone(t *testing.T) {
	s := newStory(t, 3)
	from, to := s.replicas[0], s.replicas[1]
	s.elect(from)
	for range 2 * from.cfg.ElectionTicks { // since it has campaigned itself
		for _, r := range s.replicas {
			r.Tick()
		}
		s.quiesce()
	}
	term := from.groups[1].term.Load()

	from.TransferAll(to.cfg.ID)
	s.work(from, -1)
	s.carry(true, from.cfg.ID, to.cfg.ID, -1)
	s.work(to, -1)
	s.carry(true, to.cfg.ID, from.cfg.ID, 1)
	s.work(from, -1)
	require.Equal(t, term+1, from.groups[1].term.Load(), "it has voted")
	for _, e := range s.wire {
		require.False(t, e.from == from.cfg.ID && e.raft.GetType() == raftpb.MsgPreVote, "it campaigns")
	}
	s.quiesce()
	require.True(t, to.Leading())
	require.Equal(t, term+1, to.groups[1].term.Load())
}
