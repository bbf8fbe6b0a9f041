package rpc_test

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/rpc"
)

// pipe is a stream without a network: messages come encoded, replies are counted.
// At most window requests are unanswered.
type pipe struct {
	grpc.ServerStream
	ctx      context.Context
	messages chan []byte
	replies  chan int
	opened   chan int64
}

var codec = sessionwire.Codec()

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) RecvMsg(m any) error {
	b, ok := <-p.messages
	if !ok {
		return io.EOF
	}
	return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
}

func (p *pipe) SendMsg(m any) error {
	if first, ok := m.(*sessionwire.ServerBatch); ok {
		p.opened <- first.Opened.Session
		return nil
	}
	data, err := codec.Marshal(m)
	if err != nil {
		return err
	}
	b := data.Materialize()
	data.Free()
	var batch sessionwire.ServerBatch
	if err := batch.Decode(b); err != nil {
		return err
	}
	for i := range batch.Replies {
		if batch.Replies[i].Code != 0 {
			panic(batch.Replies[i].Message)
		}
	}
	p.replies <- len(batch.Replies)
	return nil
}

// BenchmarkSession is a server's work for requests of a session, 64 to a message and
// four messages under way, without gRPC's transport: from the message as it came to
// the encoded reply, the log and the store included; and the test's decoding of the
// replies.
func BenchmarkSession(b *testing.B) {
	for _, partitions := range []int{1, 2} {
		for _, kind := range []stoapb.Kind{stoapb.Kind_PUT, stoapb.Kind_RANGE} {
			b.Run(fmt.Sprintf("%v/P=%d", kind, partitions), func(b *testing.B) { benchSession(b, partitions, kind) })
		}
	}
}

func benchSession(b *testing.B, partitions int, kind stoapb.Kind) {
	const perMessage, messages = 64, 4
	n, _, _ := startServer(b, partitions, rpc.Options{})
	value := make([]byte, 256)
	var bodies [1024][]byte
	for i := range bodies {
		key := fmt.Appendf(nil, "/bench/key%06d", i)
		_, err := n.Put(context.Background(), &pb.PutRequest{Key: key, Value: value})
		require.NoError(b, err)
		var m proto.Message = &pb.RangeRequest{Key: key}
		if kind == stoapb.Kind_PUT {
			m = &pb.PutRequest{Key: key, Value: value}
		}
		bodies[i], err = proto.Marshal(m)
		require.NoError(b, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &pipe{ctx: ctx, messages: make(chan []byte, messages), replies: make(chan int, 1024), opened: make(chan int64, 1)}
	done := make(chan error, 1)
	go func() { done <- rpc.OpenSession(n, p) }()
	first, err := (&sessionwire.ClientBatch{Open: &stoapb.OpenSession{Ttl: 60}}).AppendTo(nil)
	require.NoError(b, err)
	p.messages <- first
	<-p.opened

	b.ReportAllocs()
	began := cpuTime(b)
	b.ResetTimer()
	batch := sessionwire.ClientBatch{Requests: make([]sessionwire.Request, perMessage)}
	seq, waiting := uint64(0), 0
	for sent := 0; sent < b.N; sent += perMessage {
		for i := range batch.Requests {
			seq++
			batch.Requests[i] = sessionwire.Request{Seq: seq, Kind: kind, Body: bodies[seq%1024]}
		}
		batch.Answered = seq - uint64(waiting) - perMessage
		raw, _ := batch.AppendTo(make([]byte, 0, 64*320))
		p.messages <- raw
		for waiting += perMessage; waiting > (messages-1)*perMessage; {
			waiting -= <-p.replies
		}
	}
	for waiting > 0 {
		waiting -= <-p.replies
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
	close(p.messages)
	<-done
}

// cpuTime is what this process has used: the machine may be busy with others.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
