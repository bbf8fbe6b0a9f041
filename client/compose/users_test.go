package compose

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// guarding is a member that lets its user read some keys, and nothing that is root's.
type guarding struct {
	pb.UnimplementedKVServer
	stoapb.UnimplementedPartitionsServer
	readable []string
	asked    *askedFor // if not nil
}

// askedFor is the keys that were asked for.
type askedFor struct {
	mu   sync.Mutex
	keys []string
}

func (g guarding) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if g.asked != nil {
		g.asked.mu.Lock()
		g.asked.keys = append(g.asked.keys, string(q.Key))
		g.asked.mu.Unlock()
	}
	if !slices.Contains(g.readable, string(q.Key)) {
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 7, Revision: 1}}, nil
}

func (guarding) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (guarding) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	return nil, rpctypes.ErrGRPCPermissionDenied
}

func asUser(t *testing.T, kind Kind, readable ...string) *Client {
	return asUserOf(t, kind, guarding{readable: readable})
}

func asUserOf(t *testing.T, kind Kind, member guarding) *Client {
	address := serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, member)
		stoapb.RegisterPartitionsServer(g, guarding{})
	})
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{address}, Kind: kind}},
		Routes:   []Route{{Prefix: "/others/", Cluster: "one"}, {Prefix: "/own/", Cluster: "one"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Members of stoa are known as such to users that aren't root.
func TestKindForAUser(t *testing.T) {
	_, kind, err := asUser(t, Auto).shared.clusters[0].connect(t.Context())
	require.NoError(t, err)
	require.Equal(t, Stoa, kind)
}

// What is read for its place in the order, or for the header of its answer, is something that a user may read.
func TestReadsOfNothingForAUser(t *testing.T) {
	c := asUser(t, Etcd, "/own/")
	require.NoError(t, c.Sync(t.Context(), "one"))
	put := c.PutAsync("/own/a", "")
	require.NoError(t, c.flush(t.Context()))
	_, err := put.Wait(t.Context())
	require.NoError(t, err)

	c = asUser(t, Etcd, "/stoa/txn/") // and parts of what the routes have
	put = c.PutAsync("/own/x/a", "")
	require.NoError(t, c.flush(t.Context()))
	select {
	case <-put.Done():
	default:
		require.Fail(t, "an earlier request has no answer")
	}
	require.ErrorIs(t, c.Sync(t.Context(), "one"), rpctypes.ErrPermissionDenied)
	of := c.shared.clusters[0]
	id, err := of.identity(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, id)
	require.Zero(t, of.next(of.near.client, 1), "it refuses")
}

// What is read for its place is the first of all keys, which is no extension's: only for who may not read that is it another,
// and then always the same.
func TestReadsOfNothingReadTheFirstKey(t *testing.T) {
	for _, one := range []struct{ readable, keys []string }{
		{[]string{"\x00", "/own/", "/others/"}, []string{"\x00", "\x00"}},
		{[]string{"/own/"}, []string{"\x00", "/others/", "/own/", "/own/"}},
	} {
		seen := new(askedFor)
		c := asUserOf(t, Etcd, guarding{readable: one.readable, asked: seen})
		for range 2 {
			require.NoError(t, c.Sync(t.Context(), "one"))
		}
		require.Equal(t, one.keys, seen.keys)
	}
}
