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

// start starts a cluster that ends with the test, in regions if there are any.
func start(t *testing.T, spec process.Spec) *process.Cluster {
	t.Helper()
	if world != nil {
		t.Cleanup(world.Heal)
		for _, r := range world.Regions[:spec.Nodes] {
			spec.Places = append(spec.Places, process.Place{Host: r.Addr, Enter: r.Do})
		}
	}
	return process.StartT(t, spec)
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
	if !bin.Stoa {
		return
	}
	t.Run("resize", func(t *testing.T) { runFaults(t, 3, 3, append(all, "resize", "resize", "resize")) })
	t.Run("sessions", func(t *testing.T) { runSessions(t, 4, all) })
	t.Run("extensions", func(t *testing.T) { runLedger(t, 3, all) })
	// What a clock breaks shows where leases end, and where leaders change: half of the faults are its.
	wrong := slices.Concat(all, slices.Repeat(clocks, 3))
	t.Run("clocks/registers", func(t *testing.T) { runFaults(t, 3, 3, wrong) })
	t.Run("clocks/locks", func(t *testing.T) { runLocks(t, 3, 3, wrong) })
	t.Run("clocks/sessions", func(t *testing.T) { runSessions(t, 4, wrong) })
	t.Run("sidecars", func(t *testing.T) { runFaultsThrough(t, 2, 3, 3, append(all, "kill a sidecar", "pause a sidecar")) })
}
