package compose

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// losing is a member that grants one lease, and loses its leader before it answers.
type losing struct {
	pb.UnimplementedLeaseServer
	granted atomic.Int64
}

func (l *losing) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if l.granted.Swap(r.ID) == r.ID {
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	return nil, rpctypes.ErrGRPCTimeoutDueToLeaderFail
}

// A lease is granted though the answer is lost on the way.
func TestGrantWhoseAnswerIsLost(t *testing.T) {
	l := &losing{}
	address := serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, l) })
	c, err := New(Config{Clusters: map[string]Cluster{"one": {Endpoints: []string{address}, Kind: Etcd}}, Routes: []Route{{Cluster: "one"}}})
	require.NoError(t, err)
	defer c.Close()
	a, err := c.Grant(t.Context(), 10)
	require.NoError(t, err)
	require.EqualValues(t, l.granted.Load(), a.ID)
	require.EqualValues(t, 10, a.TTL)
	txn, err := c.shared.locker.lease(t.Context(), c.shared.clusters[0])
	require.NoError(t, err)
	require.EqualValues(t, l.granted.Load(), txn.id)
}
