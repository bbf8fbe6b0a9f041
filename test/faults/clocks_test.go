//go:build faults

package faults

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// clocks are faults of clocks, beside those that have other servers lead.
var clocks = append(slices.Sorted(maps.Keys(clockFaults)), "kill the leader", "pause the leader for long", "move the leader")

// binaryFor is the server under test, or one whose clock can be set if there is such a fault.
func binaryFor(t *testing.T, faults []string) process.Binary {
	t.Helper()
	for _, name := range faults {
		if clockFaults[name] != nil {
			bin, err := process.WithClock()
			require.NoError(t, err)
			return bin
		}
	}
	bin, err := process.UnderTest()
	require.NoError(t, err)
	return bin
}

// TestLinksOfASetClock: a server whose clock is set back takes none of the others for silent. It did,
// once 15 s had passed.
func TestLinksOfASetClock(t *testing.T) {
	requireStoa(t)
	c := start(t, process.Spec{Binary: binaryFor(t, clocks), Nodes: 3})
	require.NoError(t, c.Servers[0].SetClock(-5*time.Hour))
	time.Sleep(20 * time.Second)
	for _, s := range c.Servers {
		require.NotContains(t, s.LogTail(1<<20), "keepalive ping failed", s.Name)
	}
}
