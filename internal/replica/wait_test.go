package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/sequencer"
)

// A strict read is released because its partition has applied the outstanding
// entries, and the server stops stamping before the read is evaluated: the
// partition must be closed through the revision that the read waited for,
// although the sequencer has no closed revision any more.
func TestReadPointOutlivesEpoch(t *testing.T) {
	r := &Replica{seq: sequencer.New(2), closed: make([]closedRevision, 2), calls: NewCalls()}
	for p := range 2 {
		r.groups = append(r.groups, &group{id: p, r: r})
	}
	r.seq.Open(1, 10)
	for p := range 2 {
		require.NoError(t, r.seq.Reserve(placement.Of(p), 1, func(uint64, int64) {}))
	}
	r.seq.Commit(12) // the stamp of partition 1; that of partition 0 is still outstanding
	done := false
	r.groups[0].after(until{stamp: r.seq.Committed(), epoch: 1}, 1, func(err error) { done = err == nil })
	require.False(t, done)

	r.seq.Applied(0, 11)
	r.seq.Close()
	r.groups[0].wait.check(r.groups[0])
	require.True(t, done)
	require.EqualValues(t, 12, r.Closed(0))
}
