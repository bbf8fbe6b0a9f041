package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rounds are compared with the rounds beside them: a machine that gets slower in the
// meantime changes no ratio.
func TestRatiosCancelDrift(t *testing.T) {
	own := []sample{{rate: 200, p99: 30}, {rate: 100, p99: 60}, {rate: 21, p99: 300}}
	base := []sample{{rate: 100, p99: 10}, {rate: 50, p99: 20}, {rate: 10, p99: 100}}
	r := compare(own, base, byRate)
	require.Equal(t, "2.00x (2.00–2.10)", r.String())
	require.Equal(t, "3.00x (3.00–3.00)", compare(own, base, byP99).String())
	require.Equal(t, "2.00x", compare(own[:1], base, byRate).String())
}

func TestVerdicts(t *testing.T) {
	at := func(rate float64, cpu, p99 time.Duration) []sample {
		return []sample{{rate: rate, cpu: cpu, p50: p99, p99: p99}}
	}
	c := cell{nodes: 3, clients: 1000, op: "put"}
	require.Equal(t, "met", verdictText(unaryGoals(c, at(350, 25, 1), at(100, 100, 1))))
	require.Equal(t, "missed: CPU per operation ≤ 0.25x", verdictText(unaryGoals(c, at(350, 26, 1), at(100, 100, 1))))
	require.Equal(t, "missed: throughput ≥ 3.50x", verdictText(unaryGoals(c, at(349, 25, 1), at(100, 100, 1))))
	c.clients = 1
	require.Equal(t, "met", verdictText(unaryGoals(c, at(1, 1, 103), at(1, 1, 100))), "the same bucket of the histogram")
	require.Equal(t, "missed: p50 ≤ 1.00x, p99 ≤ 1.00x", verdictText(unaryGoals(c, at(1, 1, 104), at(1, 1, 100))))
	c.clients = 100
	require.Empty(t, verdictText(unaryGoals(c, at(1, 1, 1), at(1, 1, 1))), "nothing is asked")
}
