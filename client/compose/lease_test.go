package compose

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// renewing is a member that grants leases and keeps them alive.
type renewing struct {
	granting
	renewed atomic.Int64
}

func (r *renewing) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	for {
		asked, err := st.Recv()
		if err != nil {
			return err
		}
		r.renewed.Add(1)
		if err := st.Send(&pb.LeaseKeepAliveResponse{ID: asked.ID, TTL: 1}); err != nil {
			return err
		}
	}
}

// A lease that is kept alive is left to itself when its client is closed, as that of a session is.
func TestCloseEndsKeepAlive(t *testing.T) {
	for what, closed := range map[string]func(c *Client) *Client{
		"a fork": func(c *Client) *Client { return c.Fork() },
		"all":    func(c *Client) *Client { return c },
	} {
		t.Run(what, func(t *testing.T) {
			member := &renewing{}
			c := over(t, serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, member) }))
			user := closed(c)
			a, err := user.Grant(t.Context(), 1)
			require.NoError(t, err)
			alive, err := user.KeepAlive(t.Context(), a.ID)
			require.NoError(t, err)
			<-alive
			require.NoError(t, user.Close())
			late := time.After(10 * time.Second) // which no renewal puts off
			for open := true; open; {
				select {
				case _, open = <-alive:
				case <-late:
					require.Fail(t, "it isn't closed")
				}
			}
			renewed := member.renewed.Load()
			time.Sleep(time.Second)
			require.Equal(t, renewed, member.renewed.Load(), "it is kept alive")
		})
	}
}

// What a client deletes by revoking a lease comes, in a feed, behind what it had seen of other clusters.
func TestRevocationsInAFeed(t *testing.T) {
	address := serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, revoking{revoked: make(chan int64, 2)}) })
	c := over(t, address)
	f := c.NewFeed()
	defer f.Close()
	a, b := f.merger.add(0, 1), f.merger.add(1, 1)
	c.core.saw(0, 10)
	_, err := c.Revoke(t.Context(), 7)
	require.NoError(t, err)
	f.merger.bring(b, item{revision: 2}) // the deletion
	require.Empty(t, f.merger.take())
	require.Equal(t, []int{0}, f.merger.lacking())
	f.merger.bring(a, item{revision: 10})
	out := f.merger.take()
	require.Len(t, out, 2)
	require.Same(t, a, out[0].lane)
	require.Same(t, b, out[1].lane)
}

// forgetful is a member that has lost all leases.
type forgetful struct{ granting }

func (forgetful) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	return st.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID})
}

// A lease that one cluster has lost is lost, whatever the others say.
func TestLeaseLostBesideASilentCluster(t *testing.T) {
	t.Parallel()
	member := func(s pb.LeaseServer) Cluster {
		return Cluster{Endpoints: []string{serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, s) })}, Kind: Etcd}
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": member(granting{}), "b": member(forgetful{})}, Timeout: patience,
		Routes: []Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.KeepAliveOnce(t.Context(), 7)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
}

// The lease of a session that was restricted to some clusters is not lost because the others don't have it.
func TestLeaseOfASessionInSomeClusters(t *testing.T) {
	member := func(s pb.LeaseServer) Cluster {
		return Cluster{Endpoints: []string{serve(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, s) })}, Kind: Etcd}
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": member(forgetful{}), "b": member(&renewing{})},
		Routes:   []Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
	})
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(t.Context(), WithClusters("b"))
	require.NoError(t, err)
	for what, by := range map[string]*Client{"the session": s.Client, "the client": c, "a fork": c.Fork()} {
		_, err = by.KeepAliveOnce(t.Context(), s.ID())
		require.NoError(t, err, what)
		ttl, err := by.TimeToLive(t.Context(), s.ID(), clientv3.WithAttachedKeys())
		require.NoError(t, err, what)
		require.EqualValues(t, 30, ttl.TTL, what)
		require.Equal(t, [][]byte{[]byte("/b/k")}, ttl.Keys)
		_, err = by.KeepAlive(t.Context(), s.ID())
		require.NoError(t, err, what)
	}
	require.NoError(t, s.Err())
	require.NoError(t, s.Close(t.Context()))
	_, err = c.KeepAliveOnce(t.Context(), s.ID())
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound, "it has ended")
}

func (r *renewing) LeaseTimeToLive(_ context.Context, q *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return &pb.LeaseTimeToLiveResponse{Header: &pb.ResponseHeader{}, ID: q.ID, TTL: 30, GrantedTTL: 30, Keys: [][]byte{[]byte("/b/k")}}, nil
}

func (r *renewing) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}
