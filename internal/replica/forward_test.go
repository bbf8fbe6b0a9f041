package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A server has just begun, as after a snapshot, and its groups hear of their leaders at
// once. Group 0 has published its own and not reported it when group 1 reports: what has
// been sent to the leader in between is under way.
func TestWhatWentToANewLeaderIsNotGivenUp(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	var failed error
	r.groups[0].leaderSeen.Store(1)
	r.Submit(&Write{
		Command: command.Command{Kind: command.Put}, Parts: placement.Of(0),
		Done: func(out Outcome) { failed = out.Err },
	})
	g := r.groups[1]
	g.term, g.leader = 2, 1
	r.lead.report(g)
	require.NoError(t, failed)

	// It is when the leader is another.
	r.groups[0].leaderSeen.Store(3)
	r.groups[0].term, r.groups[0].leader = 3, 3
	r.lead.report(r.groups[0])
	require.ErrorIs(t, failed, fault.TimeoutLeaderFail)
}
