package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However often the number changes, slots are even, no more move than have to, and a pin stays
// unless its partition goes.
func TestResizedIsEvenAndMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(rapid.IntRange(1, 16).Draw(t, "partitions"))
		nothing := func(string) bool { return false }
		if m.Partitions() > 1 {
			var err error
			m, err = m.Pin("/a/b/", m.Partitions()/2, nothing)
			require.NoError(t, err)
		}
		for range 4 {
			n := rapid.IntRange(1, 16).Draw(t, "next")
			next := m.Resized(n)
			require.Equal(t, n, next.Partitions())
			moved, gone := 0, 0
			for s := range Slots {
				if m.slots[s] != next.slots[s] {
					moved++
				}
				if int(m.slots[s]) >= n {
					gone++
				}
			}
			for p := range n {
				require.InDelta(t, float64(Slots)/float64(n), next.SlotsOf(p), 2)
			}
			fresh := max(0, n-m.Partitions()) * (Slots/n + 1)
			require.LessOrEqual(t, moved, max(gone, fresh)+2*n)
			if at := m.Partition([]byte("/a/b/c")); len(m.Pins()) > 0 && at < n {
				require.Equal(t, at, next.Partition([]byte("/a/b/c")))
			}
			back, err := Decode(next.Encode())
			require.NoError(t, err)
			require.True(t, back.Equal(next))
			m = next
		}
	})
}

// A map over more partitions places every key as before, and one over fewer does if they have all slots.
func TestOverKeepsKeysWhereTheyAre(t *testing.T) {
	m, err := New(4).Pin("/a/b/", 1, func(string) bool { return false })
	require.NoError(t, err)
	require.False(t, m.Within(3))
	require.Panics(t, func() { m.Over(3) })
	wide := m.Over(16)
	require.Equal(t, 16, wide.Partitions())
	require.Equal(t, m.Table(), wide.Table())
	require.Equal(t, m.Pins(), wide.Pins())
	require.Empty(t, Difference(wide, m.Over(16)))
	drained := m.Resized(2).Over(4)
	require.True(t, drained.Within(2))
	require.Equal(t, drained.Table(), drained.Over(2).Table())
	require.Panics(t, func() { m.Over(5).Towards(m.Resized(5)).Over(6) }, "in transit")
}
