package compose

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
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
func serve(t *testing.T, register func(*grpc.Server)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func serveKV(t *testing.T, s pb.KVServer) string {
	return serve(t, func(g *grpc.Server) { pb.RegisterKVServer(g, s) })
}

// Reads that were sent behind one that should have led, and was refused, are led by nothing: they are synced.
func TestReadsBehindARefusedOneAreSynced(t *testing.T) {
	s := &refusing{refuse: make(chan struct{}), local: map[string]bool{}}
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{serveKV(t, s)}, Kind: Etcd}},
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

// lagging is a server whose local reads, all but the first one, are of an older revision. The first others are
// answered when all are there, not all at one revision.
type lagging struct {
	pb.UnimplementedKVServer
	lead   chan struct{}
	behind int
	all    chan struct{}

	mu       sync.Mutex
	repeated int
}

func (s *lagging) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	switch {
	case string(q.Key) == "/lead":
		<-s.lead
		return answerAt(8), nil
	case q.Serializable && string(q.Key) == "/new":
		return answerAt(10), nil
	case q.Serializable:
		return answerAt(9), nil
	}
	s.mu.Lock()
	s.repeated++
	n := s.repeated
	if n == s.behind {
		close(s.all)
	}
	s.mu.Unlock()
	select {
	case <-s.all:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if n <= s.behind {
		return answerAt(11 + int64(n%2)), nil
	}
	return answerAt(12), nil
}

// Reads that show less than one before them are repeated together: one after the other, those of a pipeline would
// share the time of one.
func TestStaleReadsAreRepeatedTogether(t *testing.T) {
	const behind = readsAtOnce - 1
	s := &lagging{lead: make(chan struct{}), behind: behind, all: make(chan struct{})}
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{serveKV(t, s)}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	keys := append([]string{"/lead", "/new"}, slices.Repeat([]string{"/old"}, behind)...)
	var all []*client.Future[*clientv3.GetResponse]
	for _, key := range keys {
		all = append(all, c.GetAsync(key))
	}
	require.Eventually(t, func() bool { // they are one run
		c.core.mu.Lock()
		defer c.core.mu.Unlock()
		return c.core.links[0].sent.Load() == int64(len(keys))
	}, 10*time.Second, time.Millisecond)
	close(s.lead)
	last := int64(0)
	for i, f := range all {
		a, err := f.Wait(t.Context())
		require.NoError(t, err, "read %d of %s", i, keys[i])
		require.GreaterOrEqual(t, a.Header.Revision, last)
		last = a.Header.Revision
	}
	require.EqualValues(t, 12, last)
}

// comparing is a server that lags: only what isn't local is answered at revision 10.
type comparing struct {
	pb.UnimplementedKVServer
}

func (comparing) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return answerAt(10), nil
}

func (comparing) Txn(_ context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 9}, Succeeded: true}
	for _, op := range q.Success {
		if !op.GetRequestRange().Serializable {
			a.Header.Revision = 10
		}
		a.Responses = append(a.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: answerAt(10)}})
	}
	return a, nil
}

// A transaction that only compares, and leads, is no local read.
func TestComparisonsLead(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{serveKV(t, comparing{})}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	a, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.Version("/a"), "=", 0)).Commit()
	require.NoError(t, err)
	require.EqualValues(t, 10, a.Header.Revision)
	require.True(t, a.Succeeded)
	require.Empty(t, a.Responses)
	_, err = c.Get(t.Context(), "/a")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().Syncs)
}

// learning is a server of etcd's that is a learner: it answers local reads of one range alone, and has no streams.
type learning struct {
	comparing
	pb.UnimplementedWatchServer
}

func (l learning) register(g *grpc.Server) {
	pb.RegisterKVServer(g, l)
	pb.RegisterWatchServer(g, l)
}

func (learning) Watch(pb.Watch_WatchServer) error { return rpctypes.ErrGRPCNotSupportedForLearner }

func (l learning) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if !q.Serializable {
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	return l.comparing.Range(ctx, q)
}

func (learning) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, rpctypes.ErrGRPCNotSupportedForLearner
}

// What a learner near the client doesn't answer goes to a voter, also if it is a local read.
func TestTransactionsBesideALearner(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Near: []string{serveKV(t, learning{})}, Endpoints: []string{serveKV(t, comparing{})}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	for range 2 { // a synced one and a local one
		_, err = c.Txn(t.Context()).Then(clientv3.OpGet("/a"), clientv3.OpGet("/b")).Commit()
		require.NoError(t, err)
	}
	_, err = c.Get(t.Context(), "/", clientv3.WithPrefix()) // around the reserved keys
	require.NoError(t, err)
}

// So does what those ask for who carry out commands, or keep mirrors up to date.
func TestWorkersBesideALearner(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Near: []string{serve(t, learning{}.register)}, Endpoints: []string{serveKV(t, comparing{})}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	by, err := c.shared.dial(t.Context(), "one")
	require.NoError(t, err)
	_, err = by.Get(t.Context(), "/a")
	require.NoError(t, err)
}

// mute is a member that accepts requests, and answers none.
type mute struct{ pb.UnimplementedKVServer }

func (mute) Range(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// They leave a preferred member that keeps silent: else they would wait for as long as it does.
func TestWorkersBesideASilentMember(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Near: []string{serveKV(t, mute{})}, Endpoints: []string{serveKV(t, comparing{})}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}}, Timeout: 300 * time.Millisecond,
	})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	by, err := c.shared.dial(ctx, "one")
	require.NoError(t, err)
	_, err = by.Get(ctx, "/a")
	require.NoError(t, err)
}

// trailing is a server whose local reads are of revision 9, and all others of 10.
type trailing struct {
	pb.UnimplementedKVServer
}

func (trailing) Range(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	now := int64(10)
	if q.Serializable {
		now = 9
	}
	if q.Revision > now {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	return answerAt(now), nil
}

func (s trailing) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	got, err := s.Range(ctx, q.Success[0].GetRequestRange())
	if err != nil {
		return nil, err
	}
	return &pb.TxnResponse{Header: got.Header, Succeeded: true, Responses: []*pb.ResponseOp{responseOf(got)}}, nil
}

// A revision that the client has seen can be read, though the member next to it hasn't come to it.
func TestReadsAtARevisionThatTheNearMemberLacks(t *testing.T) {
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{serveKV(t, trailing{})}, Kind: Etcd}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	defer c.Close()
	first, err := c.Get(t.Context(), "/a")
	require.NoError(t, err)
	seen := clientv3.WithRev(first.Header.Revision)
	a, err := c.Get(t.Context(), "/a", seen)
	require.NoError(t, err)
	require.EqualValues(t, 10, a.Header.Revision)
	_, err = c.GetAsync("/a", seen).Wait(t.Context())
	require.NoError(t, err)
	_, err = c.Txn(t.Context()).Then(clientv3.OpGet("/a", seen)).Commit()
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "/a", clientv3.WithRev(11))
	require.ErrorIs(t, err, rpctypes.ErrFutureRev)
	_, err = c.Get(t.Context(), "/a", seen)
	require.NoError(t, err, "behind a refusal")
}
