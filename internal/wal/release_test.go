package wal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A group that has little to log is found in the segments that it keeps.
func TestBehind(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	add := func(group uint32, index uint64) {
		require.NoError(t, w.Append([]Record{{Group: group, Kind: 16, Index: index, Data: make([]byte, 300)}}))
		require.NoError(t, w.Sync())
	}
	add(2, 5)
	require.Nil(t, w.Behind(1), "nothing is behind the last segment")
	for i := range uint64(12) {
		add(1, i+1)
	}
	check := func(w *WAL) {
		t.Helper()
		require.Greater(t, w.Segments(), 3)
		require.EqualValues(t, 5, w.Behind(1)[2])
		require.Greater(t, w.Behind(1)[1], w.Behind(1100)[1], "the last segments have what was added last")
		require.Less(t, w.Behind(1)[1], uint64(12))
		require.EqualValues(t, 5, w.Behind(1100)[2])
		require.Nil(t, w.Behind(w.Size()))
	}
	check(w)
	require.NoError(t, w.Close())
	w = f.restart()
	check(w)
	require.NoError(t, w.Release(map[uint32]uint64{1: w.Behind(1)[1] + 1, 2: 6}))
	require.Equal(t, 1, w.Segments())
	require.Nil(t, w.Behind(1))
	require.NoError(t, w.Close())
}
