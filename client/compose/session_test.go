package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	t.Parallel()
	member := func(after time.Duration) Cluster {
		address := serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, granting{after: after}) })
		return Cluster{Endpoints: []string{address}, Kind: Etcd}
	}
	const ttl, slow = 6 * time.Second, 4 * time.Second
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

// slow is a member that grants leases, and carries out puts when it may.
type slow struct {
	pb.UnimplementedKVServer
	granting
	came chan string // the keys of puts, as they come
	puts chan string // has room for none: who takes one lets it go on
}

func (s slow) Put(_ context.Context, q *pb.PutRequest) (*pb.PutResponse, error) {
	s.came <- string(q.Key)
	s.puts <- string(q.Key)
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// What a session has sent, and an etcd cluster has not been asked for yet, isn't sent when the session has ended.
func TestPutsBehindTheEndOfTheirSession(t *testing.T) {
	m := slow{came: make(chan string, 3), puts: make(chan string)}
	c := ofMembers(t, 0, func(g *grpc.Server) {
		pb.RegisterKVServer(g, m)
		pb.RegisterLeaseServer(g, m)
	})
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	first, second := s.PutAsync("/first", ""), s.PutAsync("/second", "")
	require.Eventually(t, func() bool { // it was sent, not held back
		c.core.mu.Lock()
		defer c.core.mu.Unlock()
		return c.core.links[0].sent.Load() == 2
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, "/first", <-m.came)
	s.end(ErrSessionExpired)
	require.Equal(t, "/first", <-m.puts)
	_, err = first.Wait(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = second.Wait(ctx)
	require.ErrorIs(t, err, ErrSessionExpired)
	var of *ClusterError
	require.ErrorAs(t, err, &of)
	require.False(t, of.Unknown)

	go func() { <-m.puts }()
	_, err = c.Put(ctx, "/third", "") // the client goes on
	require.NoError(t, err)
}

// holding is a member that knows a key of each lease.
type holding struct{ granting }

func (holding) LeaseTimeToLive(_ context.Context, q *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return &pb.LeaseTimeToLiveResponse{Header: &pb.ResponseHeader{}, ID: q.ID, TTL: 9, GrantedTTL: 10, Keys: [][]byte{[]byte("/k")}}, nil
}

// A cluster that is named twice is one of the session's, once.
func TestSessionInAClusterNamedTwice(t *testing.T) {
	c := ofMembers(t, 0, func(g *grpc.Server) { pb.RegisterLeaseServer(g, holding{}) })
	name := c.shared.clusters[0].name
	s, err := c.Session(t.Context(), WithClusters(name, name))
	require.NoError(t, err)
	a, err := c.TimeToLive(t.Context(), s.ID(), clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Len(t, a.Keys, 1)
}
