package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnginesAreComparedWithIsolatedOnes(t *testing.T) {
	r := engineRates{
		rates:  [][]float64{{100, 110, 90}, {130, 143, 117}, {90, 90, 90}, {150, 150, 150}, {200, 200, 200}, {380, 400, 390}},
		allocs: []float64{16, 17, 17, 16, 16, 17},
		apart:  []float64{140, 154, 126},
	}
	rows := r.rows("put")
	require.Len(t, rows, len(engines)+1)
	require.Equal(t, []string{"put", "2", "2", "130", "7.69ms", "17", "1.30x (1.30–1.30)"}, rows[1])
	require.Equal(t, []string{"put", "two engines that share nothing, 1 each", "1 each", "140", "7.14ms", "16", "1.40x (1.40–1.40)"}, rows[len(engines)])
	require.Equal(t, "2, files in memory", rows[5][1])
	require.Equal(t, "0.93x (0.93–0.93)", r.ofMachine().String())
	require.Equal(t, "1.95x (1.90–2.00)", r.withoutDisk().String())
}

// A bound process has the cores that it was given, and its parent keeps its
// own.
func TestBoundProcessesHaveTheirCores(t *testing.T) {
	cpus, err := usable()
	require.NoError(t, err)
	require.NotEmpty(t, cpus)
	last := cpus[len(cpus)-1:]
	require.NoError(t, bound(last, func() error {
		inside, err := usable()
		require.Equal(t, last, inside)
		return err
	}))
	after, err := usable()
	require.NoError(t, err)
	require.Equal(t, cpus, after)
}
