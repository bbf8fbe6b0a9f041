package compose

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// refusing is a server that refuses a key, when it is told to.
type refusing struct {
	pb.UnimplementedKVServer
	refuse chan struct{}

	mu    sync.Mutex
	local map[string]bool // keys that were read, the last time locally
}

func (s *refusing) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if string(q.Key) == "/refused" {
		<-s.refuse
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local[string(q.Key)] = q.Serializable
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// serve runs a server, and returns its address.
func serve(t *testing.T, s pb.KVServer) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterKVServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// Reads that were sent behind one that should have led, and was refused, are led by nothing: they are synced.
func TestReadsBehindARefusedOneAreSynced(t *testing.T) {
	s := &refusing{refuse: make(chan struct{}), local: map[string]bool{}}
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{serve(t, s)}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	refused := c.GetAsync("/refused")
	behind := c.GetAsync("/behind")
	require.Eventually(t, func() bool { // it was sent, not held back
		c.core.mu.Lock()
		defer c.core.mu.Unlock()
		return c.core.links[0].sent.Load() == 2
	}, 10*time.Second, time.Millisecond)
	close(s.refuse)
	_, err = refused.Wait(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = behind.Wait(t.Context())
	require.NoError(t, err)
	for _, key := range []string{"/next", "/last"} {
		_, err = c.Get(t.Context(), key)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]bool{"/behind": false, "/next": false, "/last": true}, s.local)
}
