package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// stallingServer answers puts at once, but for a time in which it answers none. It
// remembers what transactions put.
type stallingServer struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	mu     sync.RWMutex // held while it stalls
	keys   sync.Map
	refuse atomic.Bool // puts
}

func (s *stallingServer) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.refuse.Load() {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return &pb.PutResponse{}, nil
}

func (s *stallingServer) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	for _, op := range r.Success {
		s.keys.Store(string(op.GetRequestPut().Key), true)
	}
	return &pb.TxnResponse{}, nil
}

// Watch answers each watcher that it is there, and then sends it two events at once.
func (s *stallingServer) Watch(stream pb.Watch_WatchServer) error {
	for id := int64(0); ; id++ {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
		if err := stream.Send(&pb.WatchResponse{WatchId: id, Created: true}); err != nil {
			return err
		}
		put := &pb.WatchResponse{WatchId: id, Events: []*mvccpb.Event{{}, {}}}
		if err := stream.Send(put); err != nil {
			return err
		}
	}
}

func serveStalling(t *testing.T) (*stallingServer, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, srv := &stallingServer{}, grpc.NewServer()
	pb.RegisterKVServer(srv, s)
	pb.RegisterWatchServer(srv, s)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	return s, l.Addr().String()
}

// All that a stall holds up is counted with the time that it was held up, not only one
// request per connection.
func TestAPacedLoadMeasuresTheFullStall(t *testing.T) {
	s, at := serveStalling(t)
	l, err := newLoad([]string{at}, 10, 16)
	require.NoError(t, err)
	l.pace = 500
	r := l.start("put", 2)
	time.Sleep(100 * time.Millisecond)
	r.record()
	s.mu.Lock()
	time.Sleep(400 * time.Millisecond)
	s.mu.Unlock()
	time.Sleep(400 * time.Millisecond)
	h := r.recorded()
	require.NoError(t, r.stop())
	require.InDelta(t, 400, h.count, 100, "800 ms at 500/s")
	require.Greater(t, h.quantile(0.8), 150*time.Millisecond, "200 of 400 waited, evenly up to 400 ms")
	require.Greater(t, h.longest, 350*time.Millisecond)
}

// An answer that is an error ends a load, unless it is to be counted.
func TestAPacedLoadCountsFailures(t *testing.T) {
	s, at := serveStalling(t)
	s.refuse.Store(true)
	l, err := newLoad([]string{at}, 10, 16)
	require.NoError(t, err)
	l.pace = 500
	r := l.start("put", 2)
	time.Sleep(100 * time.Millisecond)
	require.ErrorContains(t, r.stop(), "no leader")

	l.failed = new(atomic.Int64)
	r = l.start("put", 2)
	r.record()
	time.Sleep(200 * time.Millisecond)
	h := r.recorded()
	require.NoError(t, r.stop())
	require.Zero(t, h.count)
	require.InDelta(t, 100, l.failed.Load(), 50)
}

// Loading puts each key once, and what is put again is a part of them.
func TestFillWithPutsEveryKey(t *testing.T) {
	s, at := serveStalling(t)
	l, err := newLoad([]string{at}, 10, 16)
	require.NoError(t, err)
	const keys = 2 * directories * txnPuts
	count := func() (n int) {
		s.keys.Range(func(k, _ any) bool { n++; return true })
		return n
	}
	require.NoError(t, l.fillWith(keys, 16, 0))
	require.Equal(t, keys, count())
	_, last := s.keys.Load(keyName(keys - 1))
	require.True(t, last)
	s.keys.Clear()
	require.NoError(t, l.fillWith(keys, 16, 1))
	require.InDelta(t, keys/renewed, count(), keys/renewed)
	require.Positive(t, count())
}

func TestWatchersAndTheirEventsAreCounted(t *testing.T) {
	_, at := serveStalling(t)
	links, err := openWatches(at, 3, 100, func(int) (string, string) { return "/a", "" })
	require.NoError(t, err)
	defer closeWatches(links)
	created := 0
	for _, l := range links {
		created += l.created
	}
	require.Equal(t, 100, created)
	for _, l := range links {
		require.NoError(t, l.until(func() bool { return l.events >= 2*l.created }))
		require.Equal(t, 2*l.created, l.events)
	}
}
