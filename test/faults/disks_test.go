//go:build faults

package faults

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// TestDisks: power is cut, so that what wasn't synced is lost, syncs and writes fail, disks are full, slow,
// and hang, beside kills and pauses, and with -network beside all that happens to links: the same checks hold.
func TestDisks(t *testing.T) {
	if !*onDisks {
		t.Skip("needs -disks")
	}
	requireStoa(t)
	all := append(slices.Sorted(maps.Keys(diskFaults)), "kill the leader", "kill all", "pause the leader", "move the leader")
	if world != nil {
		all = slices.AppendSeq(all, maps.Keys(networkFaults))
	}
	slices.Sort(all)
	alone := []string{"power of one", "kill one, then its power", "slow disk", "the disk hangs", "a sync fails", "a write fails", "the disk is full"}
	for _, parts := range []int{1, 3} {
		t.Run(fmt.Sprintf("registers/1/P=%d", parts), func(t *testing.T) { runFaults(t, 1, parts, alone) })
		t.Run(fmt.Sprintf("registers/3/P=%d", parts), func(t *testing.T) { runFaults(t, 3, parts, all) })
		t.Run(fmt.Sprintf("transactions/P=%d", parts), func(t *testing.T) { runAppends(t, 3, parts, all) })
		t.Run(fmt.Sprintf("locks/P=%d", parts), func(t *testing.T) { runLocks(t, 3, parts, all) })
	}
	t.Run("resize", func(t *testing.T) {
		runFaults(t, 3, 3, append(all, "resize", "resize, kill one", "resize, kill the leader"))
	})
	t.Run("sessions", func(t *testing.T) { runSessions(t, 4, all) })
	t.Run("extensions", func(t *testing.T) { runLedger(t, 3, all) })
}
