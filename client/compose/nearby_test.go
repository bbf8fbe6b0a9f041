package compose

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Forks share as many sessions as there are cores, in turn, and calls have one.
func TestVicinity(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	v := newVicinity(&cluster{})
	var nth []int
	for range 7 {
		nth = append(nth, v.share().nth)
	}
	require.Equal(t, []int{0, 1, 2, 0, 1, 2, 0}, nth)
	require.Same(t, &v.all[0], v.first())

	runtime.GOMAXPROCS(2 * nearbyAtMost)
	seen := map[*nearby]bool{}
	for range 3 * nearbyAtMost {
		seen[v.share()] = true
	}
	require.Len(t, seen, nearbyAtMost)
}
