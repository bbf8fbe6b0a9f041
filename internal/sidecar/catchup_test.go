package sidecar

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// searching is a member that takes its time to find the first event of a watch from the past. Like
// any it tells no progress meanwhile.
type searching struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	takes time.Duration
}

func (m *searching) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: 1000}
}

func (m *searching) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: m.header()}, nil
}

func (m *searching) Watch(st pb.Watch_WatchServer) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		c := r.GetCreateRequest()
		if c == nil {
			continue
		}
		if err := st.Send(&pb.WatchResponse{Header: m.header(), WatchId: c.WatchId, Created: true}); err != nil {
			return err
		}
		if c.StartRevision == 0 || c.StartRevision > 500 {
			continue
		}
		select {
		case <-time.After(m.takes):
		case <-st.Context().Done():
			return st.Context().Err()
		}
		kv := &mvccpb.KeyValue{Key: c.Key, CreateRevision: 500, ModRevision: 500, Version: 1}
		if err := st.Send(&pb.WatchResponse{Header: m.header(), WatchId: c.WatchId, Events: []*mvccpb.Event{{Kv: kv}}}); err != nil {
			return err
		}
	}
}

// start returns its address.
func (m *searching) start(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	pb.RegisterKVServer(g, m)
	pb.RegisterWatchServer(g, m)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// A member that searches for longer than it may be silent isn't asked for the same again and again.
func TestWatchForWhichAMemberSearchesForLong(t *testing.T) {
	defer func(d time.Duration) { maxSilence = d }(maxSilence)
	maxSilence = 20 * time.Millisecond
	m := &searching{takes: 10 * maxSilence}
	_, conn := start(t, Upstream{Endpoints: []string{m.start(t)}})

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	st, err := pb.NewWatchClient(conn).Watch(ctx)
	require.NoError(t, err)
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 5},
	}}))
	for {
		r, err := st.Recv()
		require.NoError(t, err)
		if len(r.Events) > 0 {
			return
		}
	}
}

// TestRefusedWatchTellsTheCluster: a watch that is refused before a member has answered any has the header of a member's answer.
func TestRefusedWatchTellsTheCluster(t *testing.T) {
	m := new(searching)
	_, conn := start(t, Upstream{Endpoints: []string{m.start(t)}})
	st, err := pb.NewWatchClient(conn).Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")},
	}}))
	r, err := st.Recv()
	require.NoError(t, err)
	require.True(t, r.Created && r.Canceled)
	require.Equal(t, m.header().String(), r.Header.String())
}

// dismissing is a member of a cluster where a user is deleted while it has a watch, whose stream breaks then.
type dismissing struct {
	searching
	pb.UnimplementedAuthServer
	past      bool  // the stream is that of a watch that catches up. That of the others goes on, as in etcd
	why       error // the user can't log in any more
	dismissed atomic.Bool
}

func (m *dismissing) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if m.dismissed.Load() {
		return nil, m.why
	}
	return &pb.AuthenticateResponse{Header: m.header(), Token: "token"}, nil
}

func (m *dismissing) Watch(st pb.Watch_WatchServer) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		c := r.GetCreateRequest()
		if c == nil {
			continue
		}
		if err := st.Send(&pb.WatchResponse{Header: m.header(), WatchId: c.WatchId, Created: true}); err != nil {
			return err
		}
		if m.past == (c.StartRevision > 0) {
			time.Sleep(50 * time.Millisecond) // for the watch to be open
			m.dismissed.Store(true)
			return status.Error(codes.Unavailable, "it stops")
		}
	}
}

// A watch ends if the sidecar's user can't log in any more.
func TestWatchOfADeletedUser(t *testing.T) {
	for _, m := range []*dismissing{
		{why: rpctypes.ErrGRPCAuthFailed}, {why: rpctypes.ErrGRPCAuthFailed, past: true},
		{why: status.Error(codes.Unknown, noPasswordUser)}, {why: status.Error(codes.Unknown, noPasswordUser), past: true},
	} {
		t.Run(fmt.Sprintf("%s,past=%v", status.Convert(m.why).Message(), m.past), func(t *testing.T) { testWatchOfADeletedUser(t, m) })
	}
}

func testWatchOfADeletedUser(t *testing.T, m *dismissing) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	pb.RegisterKVServer(g, m)
	pb.RegisterWatchServer(g, m)
	pb.RegisterAuthServer(g, m)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	s, conn := start(t, Upstream{Endpoints: []string{l.Addr().String()}, Username: "u", Password: "p"})
	<-s.up.authenticated
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st, err := pb.NewWatchClient(conn).Watch(ctx)
	require.NoError(t, err)
	c := &pb.WatchCreateRequest{Key: []byte("k")}
	if m.past {
		c.StartRevision = 5
	}
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}}))
	r, err := st.Recv()
	require.NoError(t, err)
	require.True(t, r.Created)
	_, err = st.Recv()
	require.Equal(t, status.Convert(m.why).Message(), status.Convert(err).Message())
}
