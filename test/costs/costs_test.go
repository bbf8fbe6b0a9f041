//go:build !race

// The race detector slows constructs down by different factors and enlarges allocations, and
// nothing here has a second goroutine: make test-race runs these tests without it.

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCosts wants the bounds that a machine busy with other tests can keep: a
// construct whose price forgets something takes a hundred times as long. The command
// has the narrow ones.
func TestCosts(t *testing.T) {
	perStep := map[string]float64{}
	var all []float64
	for _, p := range slices.Concat(probes, hostProbes) {
		u := p.measure(3)
		perStep[p.name] = u.perStep()
		all = append(all, u.perStep())
		require.LessOrEqual(t, u.perByte(), maxPerByte, p.name)
	}
	slices.Sort(all)
	middle := all[len(all)/2]
	for name, ns := range perStep {
		require.Less(t, ns, 15*middle, name)
	}
}

// TestSearch runs some of the scripts that the search would, for the bytes.
func TestSearch(t *testing.T) {
	s := newSearch(7, 4)
	g := s.goals[1]
	scored := 0
	for range 150 {
		c, _ := s.try(g)
		if c.score > 0 {
			scored++
		}
		require.Less(t, c.score, 2.0, c.body())
	}
	require.Greater(t, scored, 20)
}

// TestTemplatesCompile wants scripts that are run, and not refused.
func TestTemplatesCompile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := candidate{setup: statements(r, 2), loop: statements(r, 2)}
		_, err := compile(c.body(), nil, keys{}, limits)
		if err != nil {
			require.True(t, strings.Contains(err.Error(), "nested more than"), "%v\n%s", err, c.body())
		}
	}
}
