package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One snapshot answers the requests of all groups, and it may be taken after the first of
// them: a later request doesn't let the log go that follows it.
func TestLogIsKeptFromTheFirstRequestForASnapshot(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	r := s.replicas[0]
	g := r.groups[0]

	g.snapshotTo(3, 100)
	require.EqualValues(t, 101, r.Needed(0))
	g.snapshotTo(3, 200)
	require.EqualValues(t, 101, r.Needed(0), "the snapshot that is being sent may be of 100")

	g.snapshotTo(2, 50)
	require.EqualValues(t, 51, r.Needed(0), "another follower's")

	g.snapshotSent(2)
	g.snapshotSent(3)
	g.snapshotTo(2, 300)
	g.snapshotTo(3, 400)
	require.EqualValues(t, 301, r.Needed(0), "these are other snapshots")
}
