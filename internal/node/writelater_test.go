package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
)

type outcome struct {
	resp answer
	err  error
}

// written waits for the outcome of Write.
func written(ctx context.Context, n *Node, r proto.Message) (answer, error) {
	done := make(chan outcome, 1)
	n.Write(ctx, r, func(resp answer, err error) { done <- outcome{resp, err} })
	out := <-done
	return out.resp, out.err
}

// Write is Put, DeleteRange and Txn on a leader and on followers, also where it is refused.
func TestWrite(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.ready()
	for i, n := range c.nodes {
		key := []byte(fmt.Sprintf("/a/%d", i))
		put, err := written(t.Context(), n, &pb.PutRequest{Key: key, Value: []byte("v")})
		require.NoError(t, err)
		require.Positive(t, put.(*pb.PutResponse).Header.Revision)
		require.Equal(t, "v", string(c.get(i, string(key), "").Kvs[0].Value)) // it reads its own write

		txn, err := written(t.Context(), n, &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: append([]byte("/b"), key...)}}},
		}})
		require.NoError(t, err)
		require.True(t, txn.(*pb.TxnResponse).Succeeded)

		read, err := written(t.Context(), n, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}}})
		require.NoError(t, err)
		require.Len(t, read.(*pb.TxnResponse).Responses[0].GetResponseRange().GetKvs(), 1)

		deleted, err := written(t.Context(), n, &pb.DeleteRangeRequest{Key: key})
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted.(*pb.DeleteRangeResponse).Deleted)

		_, err = written(t.Context(), n, &pb.PutRequest{Key: key, Lease: 404})
		require.ErrorIs(t, err, fault.LeaseNotFound)
		_, err = written(t.Context(), n, &pb.CompactionRequest{})
		require.ErrorIs(t, err, fault.Internal)
	}
}

// Each write has one outcome, also of those that wait for a leader when their server stops.
func TestWritesEndWithTheServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	c.put(0, "/k", "v")
	c.stop(1)
	c.stop(2) // no quorum is left
	var begun, ended atomic.Int64
	var writers sync.WaitGroup
	for i := range 10 {
		writers.Go(func() {
			for range 20 {
				begun.Add(1)
				c.nodes[0].Write(t.Context(), &pb.PutRequest{Key: []byte(fmt.Sprint(i))}, func(_ answer, err error) {
					if err == nil {
						t.Error("acknowledged without a quorum")
					}
					ended.Add(1)
				})
			}
		})
	}
	writers.Wait()
	c.stop(0)
	require.Eventually(t, func() bool { return ended.Load() == begun.Load() }, 20*time.Second, time.Millisecond)
}
