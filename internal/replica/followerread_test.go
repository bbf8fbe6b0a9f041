package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The group's loop publishes an applied index first and raises its closed
// revision later. A read that waits for the index is released in between, and
// must see the closed revision that came with it.
func TestAForwardedReadSeesItsPointAtOnce(t *testing.T) {
	s := newStory(t, 3)
	r := s.replicas[1]
	parts := placement.Of(0) | placement.Of(1)
	points := []Closed{{Group: 0, Index: 5, Revision: 9}, {Group: 1, Index: 7, Revision: 9}}
	done := false
	r.reads.asked = []forwardedRead{{parts, r.deadline(), func(err error) {
		require.NoError(t, err)
		for p := range parts.Each() {
			require.EqualValues(t, 9, r.Closed(p))
		}
		done = true
	}}}
	r.reads.answered(parts, encodePoints(points), nil)
	for i, g := range r.groups {
		require.False(t, done)
		g.applied.Store(points[i].Index)
		g.wait.check(g)
	}
	require.True(t, done)
}

// A question for a partition that is gone, too, is asked again by all its reads: those of others go on.
func TestAReadBesideOneOfAPartitionThatIsGone(t *testing.T) {
	s := leading(t, 3)
	r, gone := s.replicas[1], placement.Of(2)
	var other, ofGone answers
	r.reads.next = []forwardedRead{{placement.Of(0), r.deadline(), other.read}, {gone, r.deadline(), ofGone.read}}
	r.reads.ask()
	s.quiesce()
	require.Equal(t, answers{1, fault.LeaderChanged}, other)
	require.Equal(t, answers{1, fault.LeaderChanged}, ofGone)
	r.ReadPoint(gone, ofGone.read)
	require.Equal(t, answers{2, fault.Moved}, ofGone)
}
