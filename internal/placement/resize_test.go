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
