package engine

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// echo answers all requests with canned bodies: the remaining time is the
// client's (and gRPC's, where it is used).
type echo struct {
	put, get []byte
	requests chan mem.Buffer
	ctx      context.Context
	buf      []byte
}

func newEcho(ctx context.Context) *echo {
	kv := &mvccpb.KeyValue{Key: []byte("/bench/key"), Value: []byte(strings.Repeat("v", 100)), CreateRevision: 2, ModRevision: 9, Version: 7}
	return &echo{
		put: must(proto.Marshal(&pb.PutResponse{})), get: must(proto.Marshal(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}, Count: 1})),
		requests: make(chan mem.Buffer, 16), ctx: ctx,
	}
}

// answer makes a ServerBatch of a ClientBatch.
func (e *echo) answer(batch []byte) []byte {
	e.buf = e.buf[:0]
	_ = eachField(batch, func(field protowire.Number, _ uint64, request []byte) error {
		if field != batchRequests {
			return nil
		}
		var seq, kind uint64
		_ = eachField(request, func(field protowire.Number, v uint64, _ []byte) error {
			switch field {
			case requestSeq:
				seq = v
			case requestKind:
				kind = v
			}
			return nil
		})
		body := e.get
		if stoapb.Kind(kind) != stoapb.Kind_RANGE {
			body = e.put
		}
		e.buf = protowire.AppendTag(e.buf, 2, protowire.BytesType)
		e.buf = protowire.AppendVarint(e.buf, uint64(varintField(seq)+bytesField(len(body))+varintField(9)))
		e.buf = appendVarint(e.buf, 1, seq)
		if len(body) > 0 {
			e.buf = protowire.AppendTag(e.buf, 5, protowire.BytesType)
			e.buf = protowire.AppendBytes(e.buf, body)
		}
		e.buf = appendVarint(e.buf, 6, 9)
		return nil
	})
	return e.buf
}

// As a stream without gRPC.

func (e *echo) SendMsg(m any) error {
	e.requests <- m.(*frame).data[0]
	return nil
}

func (e *echo) RecvMsg(m any) error {
	select {
	case b := <-e.requests:
		answer := e.answer(b.ReadOnlyData())
		b.Free()
		m.(*inbound).data = mem.Copy(answer, mem.DefaultBufferPool())
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

type echoStream struct {
	grpc.ClientStream
	*echo
}

func (s echoStream) SendMsg(m any) error { return s.echo.SendMsg(m) }
func (s echoStream) RecvMsg(m any) error { return s.echo.RecvMsg(m) }

// bareSession is a session over a stream that isn't gRPC's.
func bareSession(tb testing.TB) *Session {
	c := must(New(Config{Endpoints: []string{"127.0.0.1:1"}}))
	s := &Session{
		c: c, done: make(chan struct{}), stopped: make(chan struct{}), wake: make(chan struct{}, 1),
		watches: map[uint64]*Watch{}, backlog: backlog{first: 1}, id: 1, ttl: time.Minute,
	}
	s.Reader = Reader{s: s}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	ctx, cancel := context.WithCancelCause(s.ctx)
	st := &stream{
		ClientStream: echoStream{echo: newEcho(ctx)}, conn: must(c.conns.acquire("127.0.0.1:1")), ctx: ctx, cancel: cancel,
		opened: time.Now(), written: make(chan struct{}), window: math.MaxInt, windowBytes: math.MaxInt,
	}
	require.NoError(tb, c.enlist(s))
	s.attach(st)
	go s.run(st)
	tb.Cleanup(func() { _ = c.Close() })
	return s
}

// echoServer answers over gRPC, as fast as it can.
func echoServer(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
	desc := stoapb.Sessions_ServiceDesc
	desc.HandlerType = nil
	desc.Streams = []grpc.StreamDesc{{StreamName: "Open", ServerStreams: true, ClientStreams: true, Handler: func(_ any, g grpc.ServerStream) error {
		e := newEcho(g.Context())
		opened := must(proto.Marshal(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: 60}}))
		if err := g.SendMsg(&frame{mem.BufferSlice{mem.SliceBuffer(opened)}}); err != nil {
			return err
		}
		for {
			var in inbound
			if err := g.RecvMsg(&in); err != nil {
				return err
			}
			answer := e.answer(in.data.ReadOnlyData())
			in.data.Free()
			if len(answer) == 0 {
				continue
			}
			if err := g.SendMsg(&frame{mem.BufferSlice{mem.Copy(answer, mem.DefaultBufferPool())}}); err != nil {
				return err
			}
		}
	}}}
	server.RegisterService(&desc, nil)
	go func() { _ = server.Serve(l) }()
	tb.Cleanup(server.Stop)
	return l.Addr().String()
}

func wireSession(tb testing.TB) *Session {
	c := must(New(Config{Endpoints: []string{echoServer(tb)}}))
	tb.Cleanup(func() { _ = c.Close() })
	return must(c.Session(context.Background(), c.Options()))
}

// BenchmarkPipeline keeps depth requests in flight. "bare" is what the client
// costs without gRPC, with the making of the canned answers; "wire" is client,
// gRPC on both sides and the server that echoes.
func BenchmarkPipeline(b *testing.B) {
	value := strings.Repeat("v", 100)
	for _, over := range []string{"bare", "wire"} {
		for _, kind := range []string{"put", "get", "mixed"} {
			for _, depth := range []int{1, 64, 256} {
				b.Run(fmt.Sprintf("%s/%s/depth=%d", over, kind, depth), func(b *testing.B) {
					s := map[string]func(testing.TB) *Session{"bare": bareSession, "wire": wireSession}[over](b)
					ctx := context.Background()
					b.ReportAllocs()
					b.ResetTimer()
					before := cpuTime()
					for i := 0; i < b.N; i += depth {
						pipeline(b, s, ctx, kind, value, depth)
					}
					b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

// cpuTime is what this process has used: the wall tells little on a busy machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func pipeline(b *testing.B, s *Session, ctx context.Context, kind, value string, depth int) {
	var err error
	switch kind {
	case "put":
		last := s.PutAsync("/bench/key", value)
		for range depth - 1 {
			last = s.PutAsync("/bench/key", value)
		}
		_, err = last.Wait(ctx)
	case "get":
		last := s.GetAsync("/bench/key")
		for range depth - 1 {
			last = s.GetAsync("/bench/key")
		}
		_, err = last.Wait(ctx)
	case "mixed":
		for range depth / 2 {
			s.PutAsync("/bench/key", value)
			s.GetAsync("/bench/key")
		}
		_, err = s.GetAsync("/bench/key").Wait(ctx)
	}
	if err != nil {
		b.Fatal(err)
	}
}
