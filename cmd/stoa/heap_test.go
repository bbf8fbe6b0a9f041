package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMostGrowth(t *testing.T) {
	for live, want := range map[float64]float64{
		0:         100,
		headroom:  100,
		320 << 20: 80,
		512 << 20: 50,
		8 << 30:   50,
	} {
		require.InDelta(t, want, mostGrowth(live), 0.1, "%f bytes alive", live)
	}
}

// heapRun has a tender look at a heap that is used at a rate for so long, and returns the percent
// that it sets in the end and how often it has changed them.
func heapRun(h *heapTender, live, rate, cost float64, length time.Duration) (percent, changes int) {
	s := h.last
	s.live = live
	for range length / tendInterval {
		used := rate * tendInterval.Seconds()
		collections := used / max(h.set/100*live, 4<<20)
		s.allocated += used
		s.cycles += collections
		s.cpu += collections * cost
		p, changed := h.tend(s, tendInterval)
		if percent = p; changed {
			changes++
		}
	}
	return percent, changes
}

func TestTheHeapGrowsByWhatItsUseNeeds(t *testing.T) {
	const live, cost = 160 << 20, 0.015
	h := &heapTender{set: defaultGC}
	idle, _ := heapRun(h, live, 1<<10, cost, time.Minute)
	require.LessOrEqual(t, idle, 8, "a server that does nothing needs no garbage")
	little, _ := heapRun(h, live, 20<<20, cost, 10*time.Second)
	require.InDelta(t, 0.015/0.01*20/160*100, little, 4, "one collection costs a hundredth of the time between two")
	much, _ := heapRun(h, live, 300<<20, cost, tendInterval)
	require.Equal(t, defaultGC, much, "a load that begins has the room at once, but no more than double")
	_, changes := heapRun(h, live, 300<<20, cost, time.Minute)
	require.Zero(t, changes)
	soon, _ := heapRun(h, live, 1<<10, cost, 2*time.Second)
	require.Greater(t, soon, 70, "a pause is no end")
	idle, changes = heapRun(h, live, 1<<10, cost, time.Minute)
	require.LessOrEqual(t, idle, 8)
	require.Less(t, changes, 25, "each change stops the world")
}

func TestTheLeastAHeapGrowsBy(t *testing.T) {
	h := &heapTender{set: defaultGC}
	small, _ := heapRun(h, 4<<20, 0, 0.001, time.Minute)
	require.Equal(t, 200, small)
	large, _ := heapRun(h, 8<<30, 0, 1, time.Minute)
	require.Equal(t, 7, large)
}
