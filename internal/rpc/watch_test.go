package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/watch"
)

func TestWatch(t *testing.T) {
	_, c := client(t, Options{ProgressInterval: 100 * time.Millisecond})
	ctx := testContext(t)
	_, err := c.Put(ctx, "a", "1")
	require.NoError(t, err)
	past := c.Watch(ctx, "a", clientv3.WithRev(1), clientv3.WithPrevKV())
	now := c.Watch(ctx, "a", clientv3.WithPrefix(), clientv3.WithProgressNotify())
	r := <-past
	require.Equal(t, "1", string(r.Events[0].Kv.Value))
	require.EqualValues(t, fakeCluster, r.Header.ClusterId)
	require.EqualValues(t, fakeTerm, r.Header.RaftTerm)
	for i := range 20 {
		_, err = c.Put(ctx, fmt.Sprintf("a%d", i), "x")
		require.NoError(t, err)
		r = <-now
		for r.IsProgressNotify() {
			r = <-now
		}
		require.Equal(t, fmt.Sprintf("a%d", i), string(r.Events[0].Kv.Key))
	}
	_, err = c.Put(ctx, "a", "2")
	require.NoError(t, err)
	r = <-past
	require.Equal(t, "1", string(r.Events[0].PrevKv.Value))
	for r = <-now; r.IsProgressNotify(); r = <-now { // from before, on a slow machine
	}
	r = <-now
	require.True(t, r.IsProgressNotify())
	require.EqualValues(t, 23, r.Header.Revision)
	require.NoError(t, c.RequestProgress(ctx))
	r = <-past
	require.True(t, r.IsProgressNotify())
}

func TestWatchCompacted(t *testing.T) {
	_, c := client(t, Options{})
	ctx := testContext(t)
	for range 5 {
		_, err := c.Put(ctx, "a", "1")
		require.NoError(t, err)
	}
	_, err := c.Compact(ctx, 4)
	require.NoError(t, err)
	r := <-c.Watch(ctx, "a", clientv3.WithRev(2))
	require.ErrorIs(t, r.Err(), rpctypes.ErrCompacted)
	require.EqualValues(t, 4, r.CompactRevision)
	r = <-c.Watch(ctx, "a", clientv3.WithRev(4))
	require.NoError(t, r.Err())
	require.Len(t, r.Events, 3)
}

// A watch that an extension may or may not have handled is opened again by the client;
// one that an extension refuses has ended.
func TestWatchOpenedAgain(t *testing.T) {
	n, c := client(t, Options{})
	ctx := testContext(t)
	var uncertain, failed error = fault.Uncertain.With("who knows"), fault.ExtensionFailed.With("line 3: no")
	n.open.Store(&uncertain)
	w := c.Watch(ctx, "a", clientv3.WithRev(1))
	_, err := c.Put(ctx, "a", "1")
	require.NoError(t, err)
	r := <-w
	require.NoError(t, r.Err())
	require.Equal(t, "1", string(r.Events[0].Kv.Value))

	n.open.Store(&failed)
	r = <-c.Watch(ctx, "a")
	require.ErrorContains(t, r.Err(), "line 3: no")
}

func TestWatchControls(t *testing.T) {
	_, conn := serve(t, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	s, err := pb.NewWatchClient(conn).Watch(ctx)
	require.NoError(t, err)
	create := func(c *pb.WatchCreateRequest) *pb.WatchResponse {
		require.NoError(t, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}}))
		r, err := s.Recv()
		require.NoError(t, err)
		require.True(t, r.Created)
		requireHeader(t, r.Header, 1)
		return r
	}
	require.EqualValues(t, 0, create(&pb.WatchCreateRequest{}).WatchId)
	require.EqualValues(t, 1, create(&pb.WatchCreateRequest{Key: []byte("a")}).WatchId)
	require.EqualValues(t, 9, create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 9}).WatchId)
	r := create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 9})
	require.True(t, r.Canceled)
	require.Equal(t, watch.ErrDuplicateID.Error(), r.CancelReason)
	r = create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -1})
	require.EqualValues(t, -1, r.WatchId)
	require.Equal(t, "etcdserver: mvcc: required revision has been compacted", r.CancelReason)

	require.NoError(t, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 77}}}))
	require.NoError(t, s.Send(&pb.WatchRequest{}))
	require.NoError(t, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 9}}}))
	r, err = s.Recv()
	require.NoError(t, err)
	require.True(t, r.Canceled)
	require.EqualValues(t, 9, r.WatchId)
	require.NoError(t, s.CloseSend())
	cancel()
	_, err = s.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestFragments(t *testing.T) {
	whole := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 9, ClusterId: 1}, WatchId: 5}
	for i := range 100 {
		whole.Events = append(whole.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, i*7)}})
	}
	const limit = 600 // the last events alone are larger
	var pieces []*pb.WatchResponse
	collect := func(r *pb.WatchResponse) error { pieces = append(pieces, r); return nil }
	require.NoError(t, sendWatch(watch.Response{WatchResponse: whole}, limit, collect))
	require.Equal(t, []*pb.WatchResponse{whole}, pieces)
	pieces = nil
	require.NoError(t, sendWatch(watch.Response{WatchResponse: whole, Fragment: true}, limit, collect))
	var events []*mvccpb.Event
	for i, p := range pieces {
		require.Equal(t, i < len(pieces)-1, p.Fragment)
		require.EqualValues(t, 5, p.WatchId)
		require.Equal(t, whole.Header, p.Header)
		if len(p.Events) > 1 {
			require.Less(t, proto.Size(p), limit)
		}
		events = append(events, p.Events...)
	}
	require.Equal(t, whole.Events, events)
}
