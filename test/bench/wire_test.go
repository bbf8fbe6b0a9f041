package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// kvServer answers as etcd would, and counts.
type kvServer struct {
	pb.UnimplementedKVServer
	puts, gets atomic.Int64
	fail       atomic.Bool
}

func (s *kvServer) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if s.fail.Load() {
		return nil, errors.New("no more")
	}
	if len(r.Key) > 0 {
		s.puts.Add(1)
	}
	return &pb.PutResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *kvServer) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if len(r.Key) > 0 {
		s.gets.Add(1)
	}
	return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: r.Key, Value: make([]byte, 256)}}}, nil
}

// The hand-written client against a real gRPC server: it makes as many calls as it
// counts, many enough that windows have to be renewed, and notices errors.
func TestLoadOnARealServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	kv, srv := &kvServer{}, grpc.NewServer()
	pb.RegisterKVServer(srv, kv)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)

	ld, err := newLoad([]string{"http://" + l.Addr().String()}, 100, 256)
	require.NoError(t, err)
	require.NoError(t, ld.fill())
	require.GreaterOrEqual(t, kv.puts.Load(), int64(100))

	for _, clients := range []int{1, 7, 250} {
		kv.gets.Store(0)
		r := ld.start("get", clients)
		r.record()
		for waiting := time.Now(); kv.gets.Load() < 300+2*int64(clients) && time.Since(waiting) < 20*time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
		h := r.recorded()
		require.NoError(t, r.stop())
		require.Greater(t, h.count, int64(20))
		require.GreaterOrEqual(t, kv.gets.Load(), h.count)
		require.LessOrEqual(t, kv.gets.Load(), 2*h.count+2*int64(clients)) // some come before and after it is recorded
	}

	kv.fail.Store(true)
	require.ErrorContains(t, ld.start("put", 3).wait(), "no more")
	l.Close()
	srv.Stop()
	require.ErrorContains(t, ld.start("put", 3).wait(), fmt.Sprint(l.Addr()))
}

// A server that has answered before it has seen that a request is whole resets the call
// behind its answer. A reset without an answer is an error.
func TestAnAnsweredCallMayBeReset(t *testing.T) {
	var frames bytes.Buffer
	server := http2.NewFramer(&frames, nil)
	require.NoError(t, server.WriteRSTStream(1, http2.ErrCodeNo))
	require.NoError(t, server.WriteRSTStream(3, http2.ErrCodeNo))
	w := &wire{framer: http2.NewFramer(nil, &frames), open: map[uint32]*call{3: {}}}
	_, err := w.next()
	require.NoError(t, err)
	_, err = w.next()
	require.ErrorContains(t, err, "broke call 3 off")
}
