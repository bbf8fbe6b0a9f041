package process

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No port is given away twice, and none of etcd's own tests.
func TestPortsAreReserved(t *testing.T) {
	ports, err := freePorts(200)
	require.NoError(t, err)
	given := map[int]bool{}
	for _, p := range ports {
		require.False(t, given[p] || p >= etcdsLowest && p < etcdsHighest)
		given[p] = true
		require.False(t, reserve(p), "it is reserved already")
	}
}
