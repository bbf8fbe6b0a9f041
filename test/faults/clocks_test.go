//go:build faults

package faults

import (
	"maps"
	"slices"
	"testing"

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
