package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressOfACopy(t *testing.T) {
	require.Equal(t, `m: [==========          ] 50 of 100 keys, 7 written`, copying("m", 50, 100, 7))
	require.Equal(t, `m: [====================] 120 of 100 keys, 7 written`, copying("m", 120, 100, 7), "the total is about")
	require.Equal(t, `m: [====================] 5 of 0 keys, 5 written`, copying("m", 5, 0, 5), "it isn't known")
}
