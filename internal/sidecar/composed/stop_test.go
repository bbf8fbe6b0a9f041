package composed

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/serve"
)

// holding is a member that answers a range when it is told to.
type holding struct {
	pb.UnimplementedKVServer
	asked, answer chan struct{}
}

func (m *holding) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if string(r.Key) == "held" {
		m.asked <- struct{}{}
		<-m.answer
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: 7}, Count: 3}, nil
}

// TestStopWaitsForRanges: a range that is answered by a stream is a call in progress like others.
func TestStopWaitsForRanges(t *testing.T) {
	m := &holding{asked: make(chan struct{}, 1), answer: make(chan struct{})}
	g := grpc.NewServer()
	pb.RegisterKVServer(g, m)
	s, err := New(compose.Config{
		Clusters: map[string]compose.Cluster{"a": {Endpoints: []string{"http://" + listen(t, g)}, Kind: compose.Etcd}},
		Routes:   []compose.Route{{Prefix: "", Cluster: "a"}},
		Timeout:  time.Minute,
	}, Executors{}, Limits{}, zap.NewNop())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, s.Serve([]*serve.Port{serve.Over(l)}, nil))
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })

	st, err := pb.NewKVClient(conn).RangeStream(t.Context(), &pb.RangeRequest{Key: []byte("held")})
	require.NoError(t, err)
	<-m.asked
	stopped := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Stop(ctx)
		close(stopped)
	}()
	time.Sleep(300 * time.Millisecond)
	close(m.answer)
	r, err := st.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 3, r.RangeResponse.Count)
	<-stopped
}
