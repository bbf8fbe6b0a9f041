package sidecar

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/serve"
)

// member is a fake member, which answers each message of any method with the same.
type member struct {
	mu   sync.Mutex
	seen []metadata.MD
	hold chan struct{} // if not nil, calls of /hold/ wait for it
	held chan struct{} // one for each that waits
}

func (m *member) handle(_ any, st grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(st.Context())
	m.mu.Lock()
	m.seen = append(m.seen, md)
	m.mu.Unlock()
	method, _ := grpc.MethodFromServerStream(st)
	if strings.HasSuffix(method, "/Authenticate") {
		return status.Error(codes.Unavailable, "no")
	}
	_ = st.SetHeader(metadata.Pairs("from-member", "header"))
	st.SetTrailer(metadata.Pairs("from-member", "trailer"))
	for {
		var in frame
		if err := st.RecvMsg(&in); err == io.EOF {
			if follows[method] {
				<-st.Context().Done()
			}
			return nil
		} else if err != nil {
			return err
		}
		if string(in.data) == "fail" {
			failed, err := status.New(codes.FailedPrecondition, "no such thing").WithDetails(&errdetails.ErrorInfo{Reason: "BECAUSE"})
			if err != nil {
				return err
			}
			return failed.Err()
		}
		if string(in.data) == "hold" {
			m.held <- struct{}{}
			<-m.hold
		}
		if err := st.SendMsg(&in); err != nil {
			return err
		}
		if strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasSuffix(method, "Stream") {
			return nil
		}
	}
}

func (m *member) last() metadata.MD {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[len(m.seen)-1]
}

func startMember(t *testing.T) (*member, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &member{hold: make(chan struct{}), held: make(chan struct{}, 100)}
	g := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(m.handle), grpc.MaxRecvMsgSize(maxMessage))
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return m, l.Addr().String()
}

// onBoth runs a test on each transport.
func onBoth(t *testing.T, test func(t *testing.T)) {
	for name, own := range map[string]bool{"grpc-go": false, "own": true} {
		t.Run(name, func(t *testing.T) {
			ownTransport = own
			defer func() { ownTransport = false }()
			test(t)
		})
	}
}

// ownTransport is that of start.
var ownTransport bool

// start returns a sidecar and a connection to it.
func start(t *testing.T, o Upstream) (*Server, *grpc.ClientConn) {
	o.DialTimeout, o.KeepAliveTime, o.KeepAliveTimeout = 5*time.Second, time.Minute, time.Minute
	ports, err := serve.Listen("test", []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}, transport.SocketOpts{})
	require.NoError(t, err)
	s, err := New(Config{Upstream: o, Unbatched: true, OwnTransport: ownTransport})
	require.NoError(t, err)
	require.NoError(t, s.Serve(ports, nil))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Stop(ctx)
	})
	conn, err := grpc.NewClient("passthrough:///"+ports[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(callOptions()...))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return s, conn
}

const aUnary, aStream, anUnknown = "/etcdserverpb.KV/Compact", "/etcdserverpb.Watch/Watch", "/of.another.Release/Method"

func TestForwardsAsItIs(t *testing.T) { onBoth(t, testForwardsAsItIs) }

func testForwardsAsItIs(t *testing.T) {
	m, addr := startMember(t)
	_, conn := start(t, Upstream{Endpoints: []string{addr}})
	big := strings.Repeat("x", 5<<20) // more than gRPC's default of 4 MiB
	for _, body := range []string{"", "\xff not protobuf", big} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "hasleader", "true", "some-bin", "\x00\x01", "twice", "a", "twice", "b")
		var out frame
		var header, trailer metadata.MD
		require.NoError(t, conn.Invoke(ctx, aUnary, &frame{[]byte(body)}, &out, grpc.Header(&header), grpc.Trailer(&trailer)))
		require.True(t, body == string(out.data), "a body of %d bytes became one of %d", len(body), len(out.data))
		require.Equal(t, []string{"header"}, header["from-member"])
		require.Equal(t, []string{"trailer"}, trailer["from-member"])
		seen := m.last()
		require.Equal(t, []string{"true"}, seen["hasleader"])
		require.Equal(t, []string{"\x00\x01"}, seen["some-bin"])
		require.Equal(t, []string{"a", "b"}, seen["twice"])
		require.Len(t, seen["user-agent"], 1)
	}
}

func TestForwardsStreams(t *testing.T) { onBoth(t, testForwardsStreams) }

func testForwardsStreams(t *testing.T) {
	_, addr := startMember(t)
	s, conn := start(t, Upstream{Endpoints: []string{addr}})
	for _, method := range []string{aStream, anUnknown} {
		st, err := conn.NewStream(t.Context(), anyStream, method)
		require.NoError(t, err)
		for _, text := range []string{"1", "2", "3"} {
			var out frame
			require.NoError(t, st.SendMsg(&frame{[]byte(text)}))
			require.NoError(t, st.RecvMsg(&out))
			require.Equal(t, text, string(out.data))
		}
		require.NoError(t, st.CloseSend())
		require.ErrorIs(t, st.RecvMsg(new(frame)), io.EOF)
		require.Equal(t, []string{"trailer"}, st.Trailer()["from-member"])
	}
	require.Contains(t, page(s, "/metrics"), `stoa_sidecar_handled_total{code="OK",method="other"} 1`)
}

func TestForwardsErrors(t *testing.T) { onBoth(t, testForwardsErrors) }

func testForwardsErrors(t *testing.T) {
	_, addr := startMember(t)
	_, conn := start(t, Upstream{Endpoints: []string{addr}})
	same := func(err error) {
		t.Helper()
		st := status.Convert(err)
		require.Equal(t, codes.FailedPrecondition, st.Code())
		require.Equal(t, "no such thing", st.Message())
		require.Len(t, st.Details(), 1)
		require.Equal(t, "BECAUSE", st.Details()[0].(*errdetails.ErrorInfo).Reason)
	}
	same(conn.Invoke(t.Context(), aUnary, &frame{[]byte("fail")}, new(frame)))
	st, err := conn.NewStream(t.Context(), anyStream, aStream)
	require.NoError(t, err)
	require.NoError(t, st.SendMsg(&frame{[]byte("fail")}))
	same(st.RecvMsg(new(frame)))
}

// TestDeadlineAndCancel: the member's call ends with the client's.
func TestDeadlineAndCancel(t *testing.T) { onBoth(t, testDeadlineAndCancel) }

func testDeadlineAndCancel(t *testing.T) {
	m, addr := startMember(t)
	defer close(m.hold)
	_, conn := start(t, Upstream{Endpoints: []string{addr}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-m.held; cancel() }()
	require.Equal(t, codes.Canceled, status.Code(conn.Invoke(ctx, aUnary, &frame{[]byte("hold")}, new(frame))))
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(conn.Invoke(ctx, aUnary, &frame{[]byte("hold")}, new(frame))))
}

// TestTokens: a call with a token goes without the sidecar's user, even if that can't be
// authenticated; one without a token doesn't go at all then.
func TestTokens(t *testing.T) {
	m, addr := startMember(t)
	_, conn := start(t, Upstream{Endpoints: []string{addr}, Username: "app", Password: "secret"})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", "mine")
	require.NoError(t, conn.Invoke(ctx, aUnary, &frame{}, new(frame)))
	m.mu.Lock()
	found := 0
	for _, md := range m.seen {
		if len(md["token"]) > 0 {
			require.Equal(t, []string{"mine"}, md["token"])
			found++
		}
	}
	m.mu.Unlock()
	require.Equal(t, 1, found)
	err := conn.Invoke(t.Context(), aUnary, &frame{}, new(frame))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, `the user "app" is not authenticated yet`)
}

// TestSilentBeforeTheUser: that there is no session, and no stream of watches for cached prefixes, before the sidecar's user is authenticated is no
// warning of its own.
func TestSilentBeforeTheUser(t *testing.T) {
	_, addr := startMember(t)
	core, said := observer.New(zap.InfoLevel)
	ports, err := serve.Listen("test", []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}, transport.SocketOpts{})
	require.NoError(t, err)
	s, err := New(Config{
		Upstream: Upstream{Endpoints: []string{addr}, Username: "app", Password: "secret", DialTimeout: 5 * time.Second},
		Cache:    []string{"/a/"}, CacheMemory: 1 << 20, Logger: zap.New(core),
	})
	require.NoError(t, err)
	require.NoError(t, s.Serve(ports, nil))
	defer s.Stop(t.Context())
	require.Eventually(t, func() bool { return said.FilterMessage("failed to authenticate the sidecar's user").Len() > 0 }, 20*time.Second, 10*time.Millisecond)
	time.Sleep(4 * minReopen)
	for _, line := range said.All() {
		require.Contains(t, []string{"failed to authenticate the sidecar's user"}, line.Message)
	}
}

// admitting is a member that authenticates its user once, and lets those wait that want that again.
type admitting struct {
	pb.UnimplementedAuthServer
	again chan struct{}
	once  atomic.Bool
}

func (m *admitting) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if m.once.CompareAndSwap(false, true) {
		return &pb.AuthenticateResponse{Header: &pb.ResponseHeader{}, Token: "one"}, nil
	}
	select {
	case m.again <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentAtTheEnd: that streams which need the user are being opened when the sidecar is stopped is no error.
func TestSilentAtTheEnd(t *testing.T) {
	m := &admitting{again: make(chan struct{}, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	pb.RegisterAuthServer(g, m)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	core, said := observer.New(zap.ErrorLevel)
	ports, err := serve.Listen("test", []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}, transport.SocketOpts{})
	require.NoError(t, err)
	s, err := New(Config{Upstream: Upstream{Endpoints: []string{l.Addr().String()}, Username: "app", Password: "secret", DialTimeout: 5 * time.Second}, Logger: zap.New(core)})
	require.NoError(t, err)
	require.NoError(t, s.Serve(ports, nil))
	<-m.again
	s.Stop(t.Context())
	require.Empty(t, said.All())
}

// TestStop: a call in progress ends with its answer, an endless stream doesn't delay the stop.
func TestStop(t *testing.T) { onBoth(t, testStop) }

func testStop(t *testing.T) {
	m, addr := startMember(t)
	s, conn := start(t, Upstream{Endpoints: []string{addr}})
	var endless []grpc.ClientStream
	for _, method := range []string{aStream, lockpb.Election_Observe_FullMethodName, healthpb.Health_Watch_FullMethodName} {
		st, err := conn.NewStream(t.Context(), anyStream, method)
		require.NoError(t, err)
		require.NoError(t, st.SendMsg(&frame{[]byte("1")}))
		if method != aStream {
			require.NoError(t, st.CloseSend())
		}
		require.NoError(t, st.RecvMsg(new(frame)))
		endless = append(endless, st)
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Invoke(t.Context(), aUnary, &frame{[]byte("hold")}, new(frame)) }()
	<-m.held
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stopped := make(chan struct{})
	go func() { s.Stop(ctx); close(stopped) }()
	require.Eventually(t, func() bool { return strings.Contains(page(s, "/readyz"), "shutting down") }, time.Minute, time.Millisecond)
	select {
	case <-stopped:
		t.Fatal("stopped before the call had its answer")
	case <-answered:
		t.Fatal("the call was not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(m.hold)
	require.NoError(t, <-answered)
	<-stopped
	require.NoError(t, ctx.Err(), "the stop waited for a stream")
	for _, st := range endless {
		require.Equal(t, codes.Unavailable, status.Code(st.RecvMsg(new(frame))))
	}
}

// TestNoMember: the error is one that clients of etcd know how to treat.
func TestNoMember(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	s, conn := start(t, Upstream{Endpoints: []string{addr}})
	require.Equal(t, codes.Unavailable, status.Code(conn.Invoke(t.Context(), aUnary, &frame{}, new(frame))))
	require.Contains(t, page(s, "/readyz"), "cluster failed")
	require.Contains(t, page(s, "/health"), `"health":"false"`)
	require.Equal(t, "ok\n", page(s, "/livez"))
}

func page(s *Server, path string) string {
	w := httptest.NewRecorder()
	s.Pages().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String()
}

func TestLargeHeaders(t *testing.T) { onBoth(t, testLargeHeaders) }

func testLargeHeaders(t *testing.T) {
	_, addr := startMember(t)
	_, conn := start(t, Upstream{Endpoints: []string{addr}})
	call := func(n int) error {
		var out frame
		return conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), "large", strings.Repeat("x", n)), aUnary, &frame{}, &out)
	}
	require.NoError(t, call(60<<10))
	require.ErrorContains(t, call(70<<10), "65536 bytes")
}
