package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// granting is a member that grants a lease after a while, and keeps silent then.
type granting struct {
	pb.UnimplementedLeaseServer
	after time.Duration
}

func (g granting) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	time.Sleep(g.after)
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: r.TTL}, nil
}

func (granting) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	<-st.Context().Done()
	return st.Context().Err()
}

// A session ends, for its user, when a cluster may have ended it: that which granted its lease at once counts from then.
func TestSessionWithASlowCluster(t *testing.T) {
	member := func(after time.Duration) Cluster {
		address := serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, granting{after: after}) })
		return Cluster{Endpoints: []string{address}, Kind: Etcd}
	}
	const ttl, slow = 3 * time.Second, 2500 * time.Millisecond
	c, err := New(Config{
		Clusters: map[string]Cluster{"quick": member(0), "slow": member(slow)},
		Routes:   []Route{{Prefix: "/q/", Cluster: "quick"}, {Prefix: "/s/", Cluster: "slow"}},
	})
	require.NoError(t, err)
	defer c.Close()
	asked := time.Now()
	s, err := c.Session(t.Context(), WithTTL(ttl))
	require.NoError(t, err)
	<-s.Done()
	require.Less(t, time.Since(asked), ttl+slow/2)
}
