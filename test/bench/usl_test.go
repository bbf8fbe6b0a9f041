package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The model goes through both measured points, and never promises more than the serial
// part allows.
func TestUSLFitsTheMeasurements(t *testing.T) {
	u := fitUSL(100_000, 170_000, 0.05)
	require.InDelta(t, 100_000, u.at(1), 1)
	require.InDelta(t, 170_000, u.at(2), 1)
	for _, n := range []int{1, 2, 4, 8, 64, 1024} {
		require.Less(t, u.at(n), u.first/u.serial)
		require.LessOrEqual(t, u.at(n), u.optimistic().at(n))
	}
	require.Less(t, u.at(1024), u.at(8), "crosstalk makes it slower in the end")

	better := fitUSL(100, 199.9, 0.05)
	require.Zero(t, better.crosstalk, "better than the serial part explains: no crosstalk, but no less of the serial part")
	require.InDelta(t, 2000, better.at(1_000_000), 1)
}

func TestProfilesAreRead(t *testing.T) {
	top := `File: node.test
Type: cpu
Duration: 2.50s, Total samples = 3.90s (156.00%)
Showing nodes accounting for 3.90s, 100% of 3.90s total
      flat  flat%   sum%        cum   cum%
         0     0%     0%      1.95s 50.00%  github.com/stoa-kv/stoa/internal/replica.(*Replica).Work
     0.01s  0.26%  0.26%      0.39s 10.00%  github.com/stoa-kv/stoa/internal/node.(*disk).run
         0     0%  0.26%      1.00s 25.64%  github.com/stoa-kv/stoa/internal/node.(*disk).runner
`
	p, err := readProfile(top)
	require.NoError(t, err)
	require.InDelta(t, 3.9, p.total, 1e-9)
	require.InDelta(t, 0.1, p.share("node.(*disk).run"), 1e-9)
	require.InDelta(t, 0.5, p.share("replica.(*Replica).Work"), 1e-9)
	require.Zero(t, p.share("node.(*Node).flushLoop"))
	_, err = readProfile("nothing")
	require.Error(t, err)

	got, err := readBench("BenchmarkEngine/put/P=2-2   \t  300000\t      4100 ns/op\t  900 B/op\t  12 allocs/op\nPASS\n")
	require.NoError(t, err)
	require.Equal(t, map[string]benchLine{"Engine/put/P=2": {ns: 4100, allocs: 12}}, got)
}
