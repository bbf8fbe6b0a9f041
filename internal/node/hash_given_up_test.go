package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

// sweeps is up to which compaction the history may be removed.
func (h *hashes) sweeps() int64 {
	cut := backend.Cut{Partitions: []store.Cut{{Sweep: 1 << 40}}}
	h.hold(&cut)
	return cut.Partitions[0].Sweep
}

// Compactions that come faster than their hashes can be taken are swept without: a hash takes as long as the
// history is large, which would grow without end.
func TestHashesThatTakeTooLongAreGivenUp(t *testing.T) {
	h := hashes{through: 1}
	for rev := int64(2); rev <= 1+maxHashes; rev++ {
		h.compacted(rev)
	}
	running, ok := h.next(1000)
	require.True(t, ok)
	require.Equal(t, historyHash{compacted: 1, revision: 2}, running)
	require.True(t, h.waitsFor(running))
	require.EqualValues(t, 1, h.sweeps(), "nothing is removed before its hash is taken")

	h.compacted(100) // one too many
	require.EqualValues(t, 100, h.sweeps())
	require.False(t, h.waitsFor(running), "it is to end")
	h.computed(running, 7, true)
	_, ok = h.at(2)
	require.False(t, ok, "it may be of a history of which a part is gone")
	require.EqualValues(t, 100, h.sweeps())

	h.compacted(101)
	running, ok = h.next(1000)
	require.True(t, ok)
	require.Equal(t, historyHash{compacted: 100, revision: 101}, running)
	h.computed(running, 7, true)
	known, ok := h.at(101)
	require.True(t, ok)
	require.EqualValues(t, 7, known.sum)
	require.EqualValues(t, 101, h.sweeps())
}
