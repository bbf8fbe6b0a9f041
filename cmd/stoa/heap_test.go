package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{
		0:         100,
		headroom:  100,
		340 << 20: 70,
		512 << 20: 50,
		8 << 30:   50,
	} {
		require.Equal(t, want, growth(live), "%d bytes alive", live)
	}
}
