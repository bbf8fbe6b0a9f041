package composed

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// member is one of a cluster of etcd's, with one lease, and one revision of many deletions.
type member struct {
	pb.UnimplementedLeaseServer
	pb.UnimplementedWatchServer
	values int // of 1 MiB each
}

func (member) LeaseKeepAlive(st grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	for {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := st.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 5}); err != nil {
			return err
		}
	}
}

func (m member) Watch(st grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	header := &pb.ResponseHeader{Revision: 2}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	r := &pb.WatchResponse{Header: header}
	for i := range m.values {
		key := []byte{'k', byte(i)}
		r.Events = append(r.Events, &mvccpb.Event{
			Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: key, ModRevision: 2},
			PrevKv: &mvccpb.KeyValue{Key: key, Value: make([]byte, 1<<20), ModRevision: 1},
		})
	}
	if err := st.Send(r); err != nil {
		return err
	}
	<-st.Context().Done()
	return nil
}

func listen(t *testing.T, s *grpc.Server) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// window is what may be on its way to who doesn't read, in bytes; gRPC would widen it.
const window = 64 << 10

func sidecarOf(t *testing.T, m pb.WatchServer) *grpc.ClientConn {
	return sidecarWithin(t, m, time.Minute)
}

// sidecarWithin is a sidecar of one member, which has to answer within a time.
func sidecarWithin(t *testing.T, m pb.WatchServer, timeout time.Duration) *grpc.ClientConn {
	g := grpc.NewServer(grpc.MaxSendMsgSize(1 << 30))
	if l, ok := m.(pb.LeaseServer); ok {
		pb.RegisterLeaseServer(g, l)
	}
	pb.RegisterWatchServer(g, m)
	return sidecarOver(t, compose.Config{
		Clusters: map[string]compose.Cluster{"a": {Endpoints: []string{"http://" + listen(t, g)}, Kind: compose.Etcd}},
		Routes:   []compose.Route{{Prefix: "", Cluster: "a"}},
		Timeout:  timeout,
	})
}

func sidecarOver(t *testing.T, cfg compose.Config) *grpc.ClientConn {
	s, err := newServices(cfg, 0)
	require.NoError(t, err)
	t.Cleanup(s.close)
	local := grpc.NewServer(grpc.StatsHandler(s.clients), grpc.InitialWindowSize(window))
	s.register(local)
	conn, err := grpc.NewClient(listen(t, local), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)), grpc.WithInitialWindowSize(window))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// What was asked before a client ends its side of the stream is answered, as by a member.
func TestKeepAliveOfAClientThatAsksForNothingMore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := sidecarOf(t, member{})
	for range 5 {
		st, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		require.NoError(t, err)
		require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
		require.NoError(t, st.CloseSend())
		a, err := st.Recv()
		require.NoError(t, err)
		require.EqualValues(t, 5, a.TTL)
	}
}

// counting is a member that counts the leases that are renewed.
type counting struct {
	pb.UnimplementedLeaseServer
	renewed chan int64
}

func (m counting) LeaseKeepAlive(st grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	m.renewed <- r.ID
	return st.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 5})
}

// mute is one that renews none.
type mute struct{ pb.UnimplementedLeaseServer }

func (mute) LeaseKeepAlive(st grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	<-st.Context().Done()
	return st.Context().Err()
}

// All leases of a client are renewed in a cluster that answers, however many wait for one that doesn't.
func TestManyLeasesBesideASilentCluster(t *testing.T) {
	const leases = 10 * renewals
	m := counting{renewed: make(chan int64, leases)}
	cluster := func(l pb.LeaseServer) compose.Cluster {
		g := grpc.NewServer()
		pb.RegisterLeaseServer(g, l)
		return compose.Cluster{Endpoints: []string{"http://" + listen(t, g)}, Kind: compose.Etcd}
	}
	conn := sidecarOver(t, compose.Config{
		Clusters: map[string]compose.Cluster{"a": cluster(m), "b": cluster(mute{})},
		Routes:   []compose.Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
		Timeout:  10 * time.Second,
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	st, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	require.NoError(t, err)
	for id := range int64(leases) {
		require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: id + 1}))
	}
	require.Eventually(t, func() bool { return len(m.renewed) == leases }, 5*time.Second, time.Millisecond)
}

// A revision is told, however large its events are, to a client that reads.
func TestEventsOfALargeRevision(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := pb.NewWatchClient(sidecarOf(t, member{values: 17})).Watch(ctx)
	require.NoError(t, err)
	create := &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), PrevKv: true, StartRevision: 1}
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}))
	a, err := st.Recv()
	require.NoError(t, err)
	require.True(t, a.Created)
	a, err = st.Recv()
	require.NoError(t, err)
	require.Len(t, a.Events, 17)
	end := &pb.WatchCancelRequest{WatchId: a.WatchId}
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: end}}))
	a, err = st.Recv() // the stream is still there
	require.NoError(t, err)
	require.True(t, a.Canceled)
}

// A client that asks for more and more and reads no answer isn't asked for more.
func TestWatchesOfAClientThatReadsNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := pb.NewWatchClient(sidecarOf(t, member{})).Watch(ctx)
	require.NoError(t, err)
	const refused = 5000
	create := &pb.WatchCreateRequest{Key: make([]byte, 1<<10), WatchId: 7}
	sent := make(chan error, 1)
	go func() {
		for range 1 + refused { // of the same ID
			if err := st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		t.Fatal("all was taken", err)
	case <-time.After(2 * time.Second):
	}
	for n := 0; n < refused; {
		a, err := st.Recv()
		require.NoError(t, err)
		if a.Canceled {
			n++
		}
	}
	require.NoError(t, <-sent)
}
