package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// breaking is a member at revision 14 whose first stream of watches breaks when one is open. The next ones bring what there is from
// their start revision on, through 15.
type breaking struct {
	pb.UnimplementedWatchServer
	streams chan struct{} // has room for one
}

func (s breaking) Watch(st pb.Watch_WatchServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	header := &pb.ResponseHeader{Revision: 14}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	select {
	case s.streams <- struct{}{}:
		return status.Error(codes.Unavailable, "broken")
	default:
	}
	q := r.GetCreateRequest()
	for rev := q.StartRevision; rev <= 15; rev++ {
		kv := &mvccpb.KeyValue{Key: q.Key, ModRevision: rev, Version: 1}
		if err := st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}}); err != nil {
			return err
		}
	}
	<-st.Context().Done()
	return st.Context().Err()
}

// A watch brings nothing from before it was open, though its stream breaks before anything has come.
func TestWatchesBeginOnce(t *testing.T) {
	open := func() *Client {
		s := breaking{streams: make(chan struct{}, 1)}
		return ofMembers(t, 0, func(g *grpc.Server) { pb.RegisterWatchServer(g, s) })
	}
	first := func(events []*clientv3.Event) { require.EqualValues(t, 15, events[0].Kv.ModRevision) }

	r := <-open().Watch(t.Context(), "k")
	require.NoError(t, r.Err())
	first(r.Events)

	f := open().NewFeed()
	defer f.Close()
	all, err := f.Watch(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 14, all[0].Begin())
	n, err := f.Next(t.Context())
	require.NoError(t, err)
	first(n.Events)
}
