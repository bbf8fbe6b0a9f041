package h2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/h2"
)

// service is the service of grpc's interoperability tests.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	running atomic.Int64
	entered chan struct{} // of calls that wait for their end
	stuck   chan struct{} // closed when those may return that don't look at their context
}

func (s *service) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

const (
	initialKey  = "x-grpc-test-echo-initial"
	trailingKey = "x-grpc-test-echo-trailing-bin"
)

func (s *service) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(initialKey); len(v) > 0 {
		_ = grpc.SendHeader(ctx, metadata.Pairs(initialKey, v[0]))
	}
	if v := md.Get(trailingKey); len(v) > 0 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(trailingKey, v[0]))
	}
	if st := r.GetResponseStatus(); st.GetCode() != 0 {
		return nil, status.Error(codes.Code(st.GetCode()), st.GetMessage())
	}
	if r.GetFillUsername() {
		return nil, s.untilItsEnd(ctx)
	}
	p, _ := peer.FromContext(ctx)
	return &grpc_testing.SimpleResponse{
		Payload:    &grpc_testing.Payload{Body: make([]byte, r.GetResponseSize())},
		ServerId:   fmt.Sprint(len(r.GetPayload().GetBody())),
		Hostname:   p.Addr.Network(),
		OauthScope: grpc.ServerTransportStreamFromContext(ctx).Method(),
	}, nil
}

func (s *service) untilItsEnd(ctx context.Context) error {
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	h2.Detach(derived)
	s.running.Add(1)
	defer s.running.Add(-1)
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	<-derived.Done()
	if s.stuck != nil {
		<-s.stuck
	}
	return status.FromContextError(ctx.Err()).Err()
}

func (s *service) StreamingOutputCall(r *grpc_testing.StreamingOutputCallRequest, out grpc_testing.TestService_StreamingOutputCallServer) error {
	for _, p := range r.GetResponseParameters() {
		if err := out.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) StreamingInputCall(in grpc_testing.TestService_StreamingInputCallServer) error {
	sum := 0
	for {
		r, err := in.Recv()
		if err == io.EOF {
			return in.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(r.GetPayload().GetBody())
	}
}

func (s *service) FullDuplexCall(both grpc_testing.TestService_FullDuplexCallServer) error {
	md, _ := metadata.FromIncomingContext(both.Context())
	if v := md.Get(initialKey); len(v) > 0 {
		_ = both.SetHeader(metadata.Pairs(initialKey, v[0]))
	}
	if v := md.Get(trailingKey); len(v) > 0 {
		both.SetTrailer(metadata.Pairs(trailingKey, v[0]))
	}
	for {
		r, err := both.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if st := r.GetResponseStatus(); st.GetCode() != 0 {
			return status.Error(codes.Code(st.GetCode()), st.GetMessage())
		}
		for _, p := range r.GetResponseParameters() {
			if err := both.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
				return err
			}
		}
	}
}

// server is what grpc-go's server and h2's have in common.
type server interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

// rig is a server, and a client of grpc-go.
type rig struct {
	*service
	server
	t    testing.TB
	addr string
	cli  grpc_testing.TestServiceClient
	conn *grpc.ClientConn
	done chan error
}

// inline are the methods whose handlers may run on the reader; they do unless a test asks for
// others.
var inline = []string{"/grpc.testing.TestService/EmptyCall", "/grpc.testing.TestService/UnaryCall"}

func newRig(t testing.TB, o h2.Options, opts ...grpc.DialOption) *rig {
	if o.Inline == nil {
		o.Inline = inline
	}
	return serve(t, h2.NewServer(o), opts...)
}

func serve(t testing.TB, s server, opts ...grpc.DialOption) *rig {
	impl := &service{}
	grpc_testing.RegisterTestServiceServer(s, impl)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, s, impl, l, opts...)
}

func serveOn(t testing.TB, s server, impl *service, l net.Listener, opts ...grpc.DialOption) *rig {
	r := &rig{t: t, service: impl, server: s, done: make(chan error, 1)}
	r.addr = l.Addr().String()
	go func() { r.done <- s.Serve(l) }()
	r.conn = r.dial(opts...)
	r.cli = grpc_testing.NewTestServiceClient(r.conn)
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-r.done)
	})
	return r
}

func (r *rig) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient(r.addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func body(n int) *grpc_testing.Payload { return &grpc_testing.Payload{Body: make([]byte, n)} }

func context10(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// cases are those of grpc's interoperability tests.
var cases = map[string]func(t *testing.T, r *rig, opts ...grpc.CallOption){
	"empty": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{}, opts...)
		require.NoError(t, err)
	},
	"large unary": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		resp, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{ResponseSize: 314159, Payload: body(271828)}, opts...)
		require.NoError(t, err)
		require.Len(t, resp.GetPayload().GetBody(), 314159)
		require.Equal(t, "271828", resp.GetServerId())
		require.Equal(t, "tcp", resp.GetHostname())
		require.Equal(t, "/grpc.testing.TestService/UnaryCall", resp.GetOauthScope())
	},
	"client streaming": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		s, err := r.cli.StreamingInputCall(context10(t), opts...)
		require.NoError(t, err)
		for _, n := range []int{27182, 8, 1828, 0, 1 << 20} {
			require.NoError(t, s.Send(&grpc_testing.StreamingInputCallRequest{Payload: body(n)}))
		}
		resp, err := s.CloseAndRecv()
		require.NoError(t, err)
		require.EqualValues(t, 27182+8+1828+1<<20, resp.GetAggregatedPayloadSize())
	},
	"server streaming": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		req := &grpc_testing.StreamingOutputCallRequest{}
		sizes := []int{31415, 9, 2653, 58979, 0, 1 << 20}
		for _, n := range sizes {
			req.ResponseParameters = append(req.ResponseParameters, &grpc_testing.ResponseParameters{Size: int32(n)})
		}
		s, err := r.cli.StreamingOutputCall(context10(t), req, opts...)
		require.NoError(t, err)
		for _, n := range sizes {
			resp, err := s.Recv()
			require.NoError(t, err)
			require.Len(t, resp.GetPayload().GetBody(), n)
		}
		_, err = s.Recv()
		require.Equal(t, io.EOF, err)
	},
	"ping pong": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		s, err := r.cli.FullDuplexCall(context10(t), opts...)
		require.NoError(t, err)
		for _, n := range []int{31415, 9, 2653, 58979} {
			require.NoError(t, s.Send(&grpc_testing.StreamingOutputCallRequest{Payload: body(n), ResponseParameters: []*grpc_testing.ResponseParameters{{Size: int32(n)}}}))
			resp, err := s.Recv()
			require.NoError(t, err)
			require.Len(t, resp.GetPayload().GetBody(), n)
		}
		require.NoError(t, s.CloseSend())
		_, err = s.Recv()
		require.Equal(t, io.EOF, err)
	},
	"empty stream": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		s, err := r.cli.FullDuplexCall(context10(t), opts...)
		require.NoError(t, err)
		require.NoError(t, s.CloseSend())
		_, err = s.Recv()
		require.Equal(t, io.EOF, err)
	},
	"metadata": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		trailing := string([]byte{0, 255, 7, 128})
		ctx := metadata.AppendToOutgoingContext(context10(t), initialKey, "hello, world", trailingKey, trailing)
		var header, trailer metadata.MD
		_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
		require.NoError(t, err)
		require.Equal(t, []string{"hello, world"}, header.Get(initialKey))
		require.Equal(t, []string{trailing}, trailer.Get(trailingKey))
		s, err := r.cli.FullDuplexCall(ctx, opts...)
		require.NoError(t, err)
		require.NoError(t, s.CloseSend())
		_, err = s.Recv()
		require.Equal(t, io.EOF, err)
		header, err = s.Header()
		require.NoError(t, err)
		require.Equal(t, []string{"hello, world"}, header.Get(initialKey))
		require.Equal(t, []string{trailing}, s.Trailer().Get(trailingKey))
	},
	"status": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		const text = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈 100%\t\n"
		echo := &grpc_testing.EchoStatus{Code: int32(codes.Unknown), Message: text}
		_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{ResponseStatus: echo}, opts...)
		require.Equal(t, codes.Unknown, status.Code(err))
		require.Equal(t, text, status.Convert(err).Message())
		s, err := r.cli.FullDuplexCall(context10(t), opts...)
		require.NoError(t, err)
		require.NoError(t, s.Send(&grpc_testing.StreamingOutputCallRequest{ResponseStatus: echo}))
		_, err = s.Recv()
		require.Equal(t, text, status.Convert(err).Message())
	},
	"unimplemented": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		_, err := r.cli.UnimplementedCall(context10(t), &grpc_testing.Empty{}, opts...)
		require.Equal(t, codes.Unimplemented, status.Code(err))
		for method, text := range map[string]string{
			"/grpc.testing.TestService/Nothing": "unknown method Nothing for service grpc.testing.TestService",
			"/no.such/Service":                  "unknown service no.such",
		} {
			err = r.conn.Invoke(context10(t), method, &grpc_testing.Empty{}, &grpc_testing.Empty{}, opts...)
			require.Equal(t, status.Error(codes.Unimplemented, text).Error(), err.Error())
		}
	},
	"cancel": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		ctx, cancel := context.WithCancel(context10(t))
		s, err := r.cli.StreamingInputCall(ctx, opts...)
		require.NoError(t, err)
		cancel()
		require.Equal(t, codes.Canceled, status.Code(s.RecvMsg(&grpc_testing.StreamingInputCallResponse{}))) // CloseAndRecv might still get an answer
		ctx, cancel = context.WithCancel(context10(t))
		both, err := r.cli.FullDuplexCall(ctx, opts...)
		require.NoError(t, err)
		require.NoError(t, both.Send(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: []*grpc_testing.ResponseParameters{{Size: 31415}}}))
		_, err = both.Recv()
		require.NoError(t, err)
		cancel()
		_, err = both.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
	},
	"deadline": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{FillUsername: true}, opts...)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Eventually(t, func() bool { return r.running.Load() == 0 }, 10*time.Second, time.Millisecond)
	},
	"too large": func(t *testing.T, r *rig, opts ...grpc.CallOption) {
		_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(5 << 20)}, opts...)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
	},
}

func TestInterop(t *testing.T) {
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, newRig(t, h2.Options{})) })
		t.Run(name+"/goroutines", func(t *testing.T) { run(t, newRig(t, h2.Options{Inline: []string{}})) })
		t.Run(name+"/small windows", func(t *testing.T) {
			run(t, newRig(t, h2.Options{StreamWindow: 1000, ConnWindow: 70_000}, grpc.WithInitialWindowSize(65_536), grpc.WithInitialConnWindowSize(65_536)))
		})
		t.Run(name+"/gzip", func(t *testing.T) { run(t, newRig(t, h2.Options{}), grpc.UseCompressor(gzip.Name)) })
		t.Run(name+"/grpc-go", func(t *testing.T) { run(t, serve(t, grpc.NewServer())) }) // so that the case is right
	}
}

// The fields of each call's headers are told, also of calls that share their headers with earlier ones.
func TestFieldsAreTold(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	r := newRig(t, h2.Options{Field: func(name, value string) {
		mu.Lock()
		defer mu.Unlock()
		told[name+" "+value]++
	}})
	for range 3 {
		_, err := r.cli.EmptyCall(metadata.AppendToOutgoingContext(t.Context(), "token", "a.1"), &grpc_testing.Empty{})
		require.NoError(t, err)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 3, told[":authority "+r.addr])
	require.Equal(t, 3, told["token a.1"])
}

// Many calls of all kinds at once, over few connections, all answered as they should be.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, h2.Options{}, grpc.WithInitialWindowSize(65_536), grpc.WithInitialConnWindowSize(65_536))
	clients := []grpc_testing.TestServiceClient{r.cli, grpc_testing.NewTestServiceClient(r.dial())}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			cli := clients[i%len(clients)]
			for j := range 30 {
				size := (i*j*7919)%100_000 + 1
				resp, err := cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{ResponseSize: int32(size), Payload: body(size / 2)})
				if err != nil || len(resp.GetPayload().GetBody()) != size || resp.GetServerId() != fmt.Sprint(size/2) {
					t.Errorf("call %d of %d: %v", j, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A client that doesn't read its stream holds up neither other calls of its connection nor the
// server.
func TestSlowReader(t *testing.T) {
	r := newRig(t, h2.Options{})
	var sizes []*grpc_testing.ResponseParameters
	for range 100 {
		sizes = append(sizes, &grpc_testing.ResponseParameters{Size: 60_000})
	}
	s, err := r.cli.StreamingOutputCall(context10(t), &grpc_testing.StreamingOutputCallRequest{ResponseParameters: sizes})
	require.NoError(t, err)
	for range 100 {
		_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{ResponseSize: 1000})
		require.NoError(t, err)
	}
	for range sizes {
		resp, err := s.Recv()
		require.NoError(t, err)
		require.Equal(t, make([]byte, 60_000), resp.GetPayload().GetBody())
	}
	_, err = s.Recv()
	require.Equal(t, io.EOF, err)
}

// GracefulStop lets calls end, and takes no new ones.
func TestGracefulStop(t *testing.T) {
	r := newRig(t, h2.Options{})
	both, err := r.cli.FullDuplexCall(context10(t))
	require.NoError(t, err)
	echo := func() {
		require.NoError(t, both.Send(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: []*grpc_testing.ResponseParameters{{Size: 100_000}}}))
		resp, err := both.Recv()
		require.NoError(t, err)
		require.True(t, bytes.Equal(make([]byte, 100_000), resp.GetPayload().GetBody()))
	}
	echo()
	stopped := make(chan struct{})
	go func() {
		r.GracefulStop()
		close(stopped)
	}()
	require.Eventually(t, func() bool {
		_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
		return status.Code(err) == codes.Unavailable
	}, 10*time.Second, time.Millisecond)
	echo()
	select {
	case <-stopped:
		t.Fatal("stopped before the last call has ended")
	default:
	}
	require.NoError(t, both.CloseSend())
	_, err = both.Recv()
	require.Equal(t, io.EOF, err)
	<-stopped
}

// Stop cancels the calls.
func TestStop(t *testing.T) {
	r := newRig(t, h2.Options{})
	r.entered = make(chan struct{})
	failed := make(chan error)
	go func() {
		_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{FillUsername: true})
		failed <- err
	}()
	<-r.entered
	r.Stop()
	require.Equal(t, codes.Unavailable, status.Code(<-failed))
	require.Eventually(t, func() bool { return r.running.Load() == 0 }, 10*time.Second, time.Millisecond)
}

// A client that cancels without end can't have more handlers than are permitted.
func TestAbandonedHandlers(t *testing.T) {
	r := newRig(t, h2.Options{})
	ctx, cancel := context.WithCancel(context10(t))
	r.entered = make(chan struct{}, 1)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{FillUsername: true})
			if status.Code(err) != codes.Canceled {
				t.Error(err)
			}
		})
	}
	for range 20 {
		<-r.entered
	}
	cancel()
	wg.Wait()
	require.Eventually(t, func() bool { return r.running.Load() == 0 }, 10*time.Second, time.Millisecond)
}

// Clients that ping too often are told to go; those that ping as often as is permitted aren't.
func TestPings(t *testing.T) {
	raw := func(o h2.Options, every time.Duration) bool {
		s := newRig(t, o)
		nc, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		defer nc.Close()
		_, err = nc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		require.NoError(t, err)
		for range 8 {
			_, _ = nc.Write([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"))
			time.Sleep(every)
		}
		_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		all, _ := io.ReadAll(nc)
		return bytes.Contains(all, []byte("too_many_pings"))
	}
	require.True(t, raw(h2.Options{}, time.Millisecond))
	require.True(t, raw(h2.Options{PingInterval: time.Minute, PingsWithoutStreams: true}, time.Millisecond))
	require.False(t, raw(h2.Options{PingInterval: time.Nanosecond, PingsWithoutStreams: true}, time.Millisecond))
}

// A connection whose client is gone ends, and so do one that is idle and one that is old.
func TestKeepAlive(t *testing.T) {
	for name, o := range map[string]h2.Options{
		"silent": {KeepAliveInterval: 20 * time.Millisecond, KeepAliveTimeout: 20 * time.Millisecond},
		"idle":   {MaxIdle: 20 * time.Millisecond, KeepAliveInterval: time.Second, KeepAliveTimeout: 20 * time.Millisecond},
		"old":    {MaxAge: 20 * time.Millisecond, MaxAgeGrace: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", newRig(t, o).addr)
			require.NoError(t, err)
			defer nc.Close()
			_, err = nc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			require.NoError(t, err)
			_ = nc.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, err = io.ReadAll(nc)
			require.NoError(t, err, "the server closes the connection")
		})
	}
	r := newRig(t, h2.Options{KeepAliveInterval: 10 * time.Millisecond, KeepAliveTimeout: 10 * time.Second},
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour}))
	r.entered = make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{FillUsername: true})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "a client that answers pings stays")
}
