package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Whether a follower has caught up is known without a turn of the loops: those of a replica that was stopped make none.
func TestCaughtUp(t *testing.T) {
	s := leading(t, 3)
	leader := s.replicas[0]
	for range 2 {
		require.True(t, leader.CaughtUp(2))
		require.False(t, leader.CaughtUp(4), "it isn't one")
		require.False(t, s.replicas[1].CaughtUp(3), "this server doesn't lead")
		leader.Stop(fault.TimeoutLeaderFail)
	}
}
