package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// As in etcd, the hash of the present state is answered beside compactions: by that to which the file has come.
func TestHashKVOfNowBesideACompaction(t *testing.T) {
	c := newCluster(t, 1, 2, func(c *Config) { c.FlushInterval = time.Hour })
	c.ready()
	c.put(0, "k", "before")
	n := c.nodes[0]
	core := n.core.Load()
	core.flushing.Lock()
	type answer struct {
		*pb.HashKVResponse
		err error
	}
	answered := make(chan answer)
	go func() {
		resp, err := n.HashKV(t.Context(), 0)
		answered <- answer{resp, err}
	}()
	require.Eventually(t, func() bool {
		free := n.rebuild.TryLock()
		if free {
			n.rebuild.Unlock()
		}
		return !free // it is about to flush
	}, 10*time.Second, time.Millisecond)
	rev := c.put(0, "k", "after")
	_, err := n.Compact(t.Context(), &pb.CompactionRequest{Revision: rev})
	require.NoError(t, err)
	core.flushing.Unlock()
	got := <-answered
	require.NoError(t, got.err)
	require.Equal(t, rev, got.HashRevision)
	require.Equal(t, rev, got.CompactRevision)
	require.GreaterOrEqual(t, got.Header.Revision, rev)
	require.Equal(t, got.Hash, c.hash(0, 0))
}
