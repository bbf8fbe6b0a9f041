package composed

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// busy is a member whose watches have an event all the time.
type busy struct{ pb.UnimplementedWatchServer }

func (busy) Watch(st grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	header := &pb.ResponseHeader{Revision: 2}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	for rev := int64(3); ; rev++ {
		r := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: rev}, Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev}}}}
		if err := st.Send(r); err != nil {
			return err
		}
	}
}

// Nothing is told of a watch behind the answer to its cancellation.
func TestCancelOfABusyWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := pb.NewWatchClient(sidecarOf(t, busy{})).Watch(ctx)
	require.NoError(t, err)
	for n := range 50 {
		create := &pb.WatchCreateRequest{Key: []byte("k"), WatchId: 7, StartRevision: 1}
		require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}))
		a, err := st.Recv()
		require.NoError(t, err)
		require.True(t, a.Created, n)
		for range n % 4 {
			_, err = st.Recv()
			require.NoError(t, err)
		}
		end := &pb.WatchCancelRequest{WatchId: 7}
		require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: end}}))
		for !a.Canceled {
			a, err = st.Recv()
			require.NoError(t, err)
		}
	}
}
