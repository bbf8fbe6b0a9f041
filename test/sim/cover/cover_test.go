package cover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each step counts once in a run, at the time of the first, and by what came before it within its event.
func TestSteps(t *testing.T) {
	Take()
	run := func() []Step {
		for i, blocks := range [][]uint32{{10, 20, 30}, {10, 20, 30}, {20, 10}} {
			Event(7, time.Duration(i)*time.Second)
			for _, b := range blocks {
				At(b)
			}
		}
		return Take()
	}
	steps := run()
	require.Len(t, steps, 5) // 10, 10-20, 20-30; 20, 20-10
	require.Equal(t, time.Duration(0), steps[2].At)
	require.Equal(t, 2*time.Second, steps[4].At)
	require.Equal(t, steps, run())
}
