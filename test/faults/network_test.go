//go:build faults

package faults

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/disk"
	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// world is there with -network.
var world *region.World

var network = flag.Bool("network", false, "each server in a network namespace of its own (needs root): TestNetwork, and the others over such links")

func TestMain(m *testing.M) {
	flag.Parse()
	if *network {
		err := region.Alone()
		if err == nil {
			world, err = region.Around(regions, 200*time.Microsecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// disks are there with -disks, by the data directories of the servers that run.
var disks = map[string]*disk.Disk{}

var onDisks = flag.Bool("disks", false, "each server on a disk of its own that loses power, fails, and is slow (needs root and FUSE): TestDisks, and the others on such disks")

// start starts a cluster that ends with the test, in regions if there are any, and on disks.
func start(t *testing.T, spec process.Spec) *process.Cluster {
	t.Helper()
	spec.Places = make([]process.Place, max(spec.Nodes, 1))
	for i := range spec.Places {
		at := &spec.Places[i]
		at.Host = "127.0.0.1"
		if world != nil {
			at.Host, at.Enter = world.Regions[i].Addr, world.Regions[i].Do
		}
		if *onDisks {
			at.DataDir = mountDisk(t)
		}
	}
	if world != nil {
		t.Cleanup(world.Heal)
	}
	return process.StartT(t, spec)
}

// mountDisk mounts one, that ends with the test; if that fails, its files stay.
func mountDisk(t *testing.T) (at string) {
	t.Helper()
	at = t.TempDir()
	d, err := disk.Mount(at)
	require.NoError(t, err)
	disks[at] = d
	t.Cleanup(func() {
		if t.Failed() {
			kept, err := process.TempDir(t.Name() + "-data")
			require.NoError(t, err)
			t.Logf("data of a server: %s (%v)", kept, os.CopyFS(kept, os.DirFS(at)))
		}
		delete(disks, at)
		require.NoError(t, d.Close())
	})
	return at
}

// TestNetwork: links are cut in every shape, in one direction only, slow, lossy, while servers
// are killed and paused: the same checks hold.
func TestNetwork(t *testing.T) {
	if world == nil {
		t.Skip("needs -network")
	}
	bin, err := process.UnderTest()
	require.NoError(t, err)
	all := append(slices.Sorted(maps.Keys(networkFaults)), "kill the leader", "kill all", "pause the leader", "pause one, kill another", "move the leader")
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		for _, nodes := range []int{3, 5} {
			t.Run(fmt.Sprintf("registers/%d/P=%d", nodes, parts), func(t *testing.T) { runFaults(t, nodes, parts, all) })
		}
		t.Run(fmt.Sprintf("transactions/P=%d", parts), func(t *testing.T) { runAppends(t, 3, parts, all) })
		t.Run(fmt.Sprintf("locks/P=%d", parts), func(t *testing.T) { runLocks(t, 3, parts, all) })
	}
	t.Run("members", func(t *testing.T) { underMembers(t, bin, all) })
	if !bin.Stoa {
		return
	}
	t.Run("releases", func(t *testing.T) { underReleases(t, all) })
	t.Run("resize", func(t *testing.T) { runFaults(t, 3, 3, append(all, "resize", "resize", "resize")) })
	t.Run("moves", func(t *testing.T) { underMoves(t, all) })
	t.Run("sessions", func(t *testing.T) { runSessions(t, 4, all) })
	t.Run("extensions", func(t *testing.T) { runLedger(t, 3, all) })
	// What a clock breaks shows where leases end, and where leaders change: half of the faults are its.
	wrong := slices.Concat(all, slices.Repeat(clocks, 3))
	t.Run("clocks/registers", func(t *testing.T) { runFaults(t, 3, 3, wrong) })
	t.Run("clocks/locks", func(t *testing.T) { runLocks(t, 3, 3, wrong) })
	t.Run("clocks/sessions", func(t *testing.T) { runSessions(t, 4, wrong) })
	t.Run("sidecars", func(t *testing.T) { runFaultsThrough(t, 2, 3, 3, append(all, "kill a sidecar", "pause a sidecar")) })
}

// underMoves has keys move about half of the time.
func underMoves(t *testing.T, others []string) {
	moving := slices.Sorted(maps.Keys(moveFaults))
	names := slices.Concat(others, moving, moving)
	t.Run("registers", func(t *testing.T) { runFaults(t, 3, 3, names) })
	t.Run("sessions", func(t *testing.T) { runSessions(t, 4, names) })
	t.Run("extensions", func(t *testing.T) { runLedger(t, 3, names) })
}

// underMembers has members replaced about half of the time.
func underMembers(t *testing.T, bin process.Binary, others []string) {
	replacing := slices.Sorted(maps.Keys(memberFaults))
	names := slices.Concat(others, replacing, replacing)
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		for _, nodes := range []int{3, 5} {
			t.Run(fmt.Sprintf("registers/%d/P=%d", nodes, parts), func(t *testing.T) { runFaults(t, nodes, parts, names) })
		}
	}
	if bin.Stoa {
		t.Run("sessions", func(t *testing.T) { runSessions(t, 4, names) })
	}
}

// underReleases has servers change between the release before and this one about half of the time, also while keys move, which
// they do in another way with the later one.
func underReleases(t *testing.T, others []string) {
	before, now := releases(t)
	changes := slices.Sorted(maps.Keys(releaseFaults))
	names := slices.Concat(others, changes, changes, slices.Repeat([]string{"upgrade the others", "downgrade"}, 3),
		[]string{"move keys", "pin keys", "pin keys, kill all"})
	for _, parts := range []int{1, 3} {
		t.Run(fmt.Sprintf("registers/P=%d", parts), func(t *testing.T) {
			runFaultsOn(t, process.Spec{Binary: before, Nodes: 3, Partitions: parts}, 0, &now, names)
		})
	}
}
