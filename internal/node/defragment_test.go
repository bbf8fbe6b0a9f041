package node

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A defragmentation that waited for another one until its client gave up isn't carried out: etcdctl gives up after five seconds, and is
// called again.
func TestNobodysDefragmentation(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.ready()
	n := c.nodes[0]
	before, err := os.Stat(n.dbPath())
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	n.rebuild.Lock()
	ended := make(chan error)
	go func() { ended <- n.Defragment(ctx) }()
	leave()
	n.rebuild.Unlock()
	require.ErrorIs(t, <-ended, context.Canceled)
	after, err := os.Stat(n.dbPath())
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))

	require.NoError(t, n.Defragment(t.Context()))
	after, err = os.Stat(n.dbPath())
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
}
