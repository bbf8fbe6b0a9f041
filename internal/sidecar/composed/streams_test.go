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

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// member is one of a cluster of etcd's, with one lease.
type member struct {
	pb.UnimplementedLeaseServer
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

func listen(t *testing.T, s *grpc.Server) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func sidecarOf(t *testing.T, m member) *grpc.ClientConn {
	g := grpc.NewServer()
	pb.RegisterLeaseServer(g, m)
	s, err := newServices(compose.Config{
		Clusters: map[string]compose.Cluster{"a": {Endpoints: []string{"http://" + listen(t, g)}, Kind: compose.Etcd}},
		Routes:   []compose.Route{{Prefix: "", Cluster: "a"}},
		Timeout:  2 * time.Second,
	}, 0)
	require.NoError(t, err)
	t.Cleanup(s.close)
	local := grpc.NewServer(grpc.StatsHandler(s.clients))
	s.register(local)
	conn, err := grpc.NewClient(listen(t, local), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// What was asked before a client ends its side of the stream is answered, as by a member.
func TestKeepAliveOfAClientThatAsksForNothingMore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
