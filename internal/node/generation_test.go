package node

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/version"
)

// A snapshot that was on its way while the number of partitions changed is not installed: it would
// take the server back to groups that nobody has any more.
func TestAnEarlierGenerationIsNotInstalled(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	earlier := n.core.Load().groups.Generation
	text, err := os.ReadFile(n.dbPath())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, n.Resize(ctx, 3))
	_, err = n.Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	require.NoError(t, err)
	now := n.core.Load()
	require.Greater(t, now.groups.Generation, earlier)

	received := n.dbPath() + ".received"
	require.NoError(t, os.WriteFile(received, text, 0o600))
	require.NoError(t, n.replace(earlier))
	require.Same(t, now, n.core.Load())
	require.NoFileExists(t, received)
	got, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Count)
}
