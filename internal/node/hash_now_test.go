package node

import (
	"context"
	"fmt"
	"sync"
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

// Hashes of the history take memory and time in proportion to the keys: one is computed at a time, and only as long as its client is there,
// which may have asked again meanwhile.
func TestHashesAreComputedOneAtATime(t *testing.T) {
	c := newCluster(t, 1, 1, func(c *Config) { c.ScrubPass, c.FlushInterval = time.Hour, time.Hour })
	c.ready()
	for i := range 30 {
		r := &pb.TxnRequest{}
		for j := range 1000 {
			put := &pb.PutRequest{Key: fmt.Appendf(nil, "/%d/%d", i, j), Value: []byte("v")}
			r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		_, err := c.nodes[0].Txn(t.Context(), r)
		require.NoError(t, err)
	}
	n := c.nodes[0]
	require.NoError(t, n.flushNow())
	file := n.core.Load().backend
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := n.HashKV(ctx, 0); err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
		})
	}
	most := 0
	for range 200 {
		most = max(most, file.Readers())
		time.Sleep(time.Millisecond)
	}
	leave()
	all.Wait()
	require.Equal(t, 1, most)
}
