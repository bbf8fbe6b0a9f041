package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at is a row in which a reader that waits 100 ms alone waits so long beside writers of
// its cluster and of another.
func at(puts float64, beside, apart int, busy float64) isolated {
	of := func(ms int) []sample {
		return []sample{{p50: time.Duration(ms) * time.Millisecond, p99: time.Second, busy: busy}}
	}
	return isolated{share: puts / 10_000, puts: []float64{puts}, alone: of(100), beside: of(beside), apart: of(apart)}
}

// Nothing is asked of a reader that the machine alone makes wait, but that the servers
// themselves add nothing to it.
func TestReadersAreJudgedUntilTheMachineIsSaturated(t *testing.T) {
	l := lonely{name: "x", apart: func(float64) contender { return contender{} }}
	all := []isolated{at(0, 100, 100, 0.1), at(10, 110, 105, 0.2), at(100, 119, 115, 0.5), at(200, 140, 130, 0.7), at(300, 300, 119, 0.95)}
	var words []string
	for _, a := range all {
		words = append(words, a.word())
	}
	require.Equal(t, []string{"", "met", "met", "saturated", "saturated"}, words)
	got := isolationGoals(l, all)
	require.False(t, got[0].missed)
	require.Equal(t, "1.19x at 100 puts/s", got[0].measured)
	require.False(t, got[1].missed)
	require.Equal(t, "1.08x at 200 puts/s", got[1].measured)

	// The servers' share is measured independently of the machine's.
	got = isolationGoals(l, append(all, at(400, 260, 130, 0.8)))
	require.False(t, got[0].missed)
	require.True(t, got[1].missed)
	require.Equal(t, "2.00x at 400 puts/s; within 1.20x up to 200 puts/s", got[1].measured)

	got = isolationGoals(l, []isolated{at(0, 100, 100, 0.1), at(10, 150, 110, 0.3)})
	require.True(t, got[0].missed)
	require.Equal(t, "1.50x at 10 puts/s", got[0].measured)

	got = isolationGoals(l, []isolated{at(0, 100, 100, 0.1), at(10, 150, 150, 0.3)})
	require.True(t, got[0].missed, "nothing could be measured, which isn't the same as met")

	require.Empty(t, isolationGoals(lonely{}, all), "another server, for comparison")
}
