package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHistogramIsAccurate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(10*time.Minute)).Draw(t, "duration"))
		u := upper(bucket(d))
		require.GreaterOrEqual(t, u, d)
		require.LessOrEqual(t, float64(u), float64(d)*(1+1.0/32))
	})
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	require.InEpsilon(t, 500*time.Millisecond, h.quantile(0.5), 0.04)
	require.InEpsilon(t, 990*time.Millisecond, h.quantile(0.99), 0.04)
	require.InEpsilon(t, 1000*time.Millisecond, h.quantile(0.9999), 0.04)
}
