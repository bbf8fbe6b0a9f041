package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is asked for is done as often as was asked, and what isn't, as often as its
// spread needs.
func TestRoundsAreThoseOfThePartUnlessGiven(t *testing.T) {
	for _, m := range measurements {
		require.Positive(t, m.rounds, m.name)
		require.Equal(t, m.rounds, (&plan{}).sized(m).rounds, m.name)
		require.Equal(t, 7, (&plan{rounds: 7}).sized(m).rounds, m.name)
	}
}
