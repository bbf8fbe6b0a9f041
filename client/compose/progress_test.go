package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// searching is a member that takes its time to find the first event of a watch from the past, and tells no progress
// meanwhile, as any.
type searching struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	takes time.Duration
	mute  bool // it answers no reads either
}

func (s searching) Range(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	if s.mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1000}}, nil
}

func (s searching) Watch(st pb.Watch_WatchServer) error {
	r, err := st.Recv()
	if err != nil {
		return err
	}
	header := &pb.ResponseHeader{Revision: 1000}
	if err := st.Send(&pb.WatchResponse{Header: header, Created: true}); err != nil {
		return err
	}
	select {
	case <-time.After(s.takes):
	case <-st.Context().Done():
		return st.Context().Err()
	}
	kv := &mvccpb.KeyValue{Key: r.GetCreateRequest().GetKey(), CreateRevision: 500, ModRevision: 500, Version: 1}
	if err := st.Send(&pb.WatchResponse{Header: header, Events: []*mvccpb.Event{{Kv: kv}}}); err != nil {
		return err
	}
	<-st.Context().Done()
	return st.Context().Err()
}

// ofMembers is a client of one cluster of etcd's with these members, connected to the first.
func ofMembers(t *testing.T, timeout time.Duration, members ...func(*grpc.Server)) *Client {
	return ofKind(t, Etcd, timeout, members...)
}

// ofKind is ofMembers for a cluster of a kind.
func ofKind(t *testing.T, kind Kind, timeout time.Duration, members ...func(*grpc.Server)) *Client {
	var addresses []string
	for _, register := range members {
		addresses = append(addresses, serve(t, register))
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: addresses, Kind: kind}}, Routes: []Route{{Cluster: "one"}},
		Timeout: timeout,
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func (s searching) register(g *grpc.Server) {
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
}

// patience is the Timeout of tests in which a cluster keeps silent: the others stand still for less, on a machine with other work, too. These tests
// wait beside each other.
const patience = 3 * time.Second

// feedOf is a feed of a client.
func feedOf(t *testing.T, c *Client) *Feed {
	f := c.NewFeed()
	t.Cleanup(f.Close)
	_, err := f.Watch(t.Context(), "k", clientv3.WithRev(5))
	require.NoError(t, err)
	return f
}

// A cluster whose member searches through much history for the first event of a watch isn't silent.
func TestFeedOfAMemberThatSearchesForLong(t *testing.T) {
	t.Parallel()
	const timeout = patience
	n, err := feedOf(t, ofMembers(t, timeout, searching{takes: 2 * timeout}.register)).Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, n.Err)
	require.EqualValues(t, 500, n.Revision)

	n, err = feedOf(t, ofMembers(t, timeout, searching{takes: time.Hour, mute: true}.register)).Next(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, n.Err, ErrSilent)
}

// The stream of a feed stays with a member that the cluster's client has left. That others answer says nothing of it.
func TestFeedOfAMemberThatWasLeft(t *testing.T) {
	t.Parallel()
	const timeout = patience
	f := feedOf(t, ofMembers(t, timeout, searching{takes: time.Hour, mute: true}.register, searching{takes: time.Hour}.register))
	_, err := f.c.Get(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*timeout)
	defer cancel()
	n, err := f.Next(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, n.Err, ErrSilent)
}

// A feed whose stream has gone to another member goes by the answers of that one.
func TestFeedThatHasGoneToAnotherMember(t *testing.T) {
	t.Parallel()
	const timeout = patience
	var first *grpc.Server
	f := feedOf(t, ofMembers(t, timeout, func(g *grpc.Server) {
		first = g
		searching{takes: time.Hour}.register(g)
	}, searching{takes: 2 * timeout}.register))
	f.c.shared.clusters[0].leave()
	first.Stop()
	n, err := f.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, n.Err)
	require.EqualValues(t, 500, n.Revision)
}

// A watch may be opened while those of its cluster end, because that is silent.
func TestOpeningBesideTheEndOfOthers(t *testing.T) {
	c := ofMembers(t, 0, searching{takes: time.Hour}.register)
	for range 200 {
		f := feedOf(t, c)
		f.mu.Lock()
		p := f.parts[0]
		f.mu.Unlock()
		opened := make(chan error)
		go func() {
			_, err := f.Watch(t.Context(), "k", clientv3.WithRev(5))
			opened <- err
		}()
		for known := 1; known == 1; {
			f.mu.Lock()
			known = len(p.watches)
			f.mu.Unlock()
		}
		p.fail()
		if err := <-opened; err != nil {
			require.ErrorIs(t, err, ErrSilent)
		}
		f.Close()
	}
}
