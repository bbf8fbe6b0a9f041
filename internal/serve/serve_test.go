package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stoa-kv/stoa/internal/h2"
)

// rig is a server that answers gRPC health checks, and "hello" to HTTP.
type rig struct {
	*Server
	port    *Port
	auth    chan credentials.AuthInfo // of each gRPC call
	traffic Traffic
}

func start(t *testing.T, urls ...string) *rig {
	t.Helper()
	r := &rig{auth: make(chan credentials.AuthInfo, 10)}
	ports, err := Listen("listen-client-urls", parseURLs(t, urls...), transport.SocketOpts{})
	require.NoError(t, err)
	require.Len(t, ports, 1)
	r.port = ports[0]
	var secure *TLS
	if Secure(ports) {
		info, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1"}, 1)
		require.NoError(t, err)
		secure, err = ClientTLS(info)
		require.NoError(t, err)
	}
	authInfo := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		p, _ := peer.FromContext(ctx)
		r.auth <- p.AuthInfo
		return next(ctx, req)
	}
	g := grpc.NewServer(grpc.Creds(Credentials()), grpc.UnaryInterceptor(authInfo))
	healthpb.RegisterHealthServer(g, health.NewServer())
	var direct GRPC
	if own {
		s := h2.NewServer(h2.Options{Creds: Credentials(), Unary: authInfo})
		healthpb.RegisterHealthServer(s, health.NewServer())
		direct = s
	}
	r.Server = New(Options{GRPC: g, Direct: direct, TLS: secure, MaxStreams: 100, Traffic: &r.traffic,
		HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello over ", r.Proto) })})
	require.NoError(t, r.Serve(ports...))
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *rig) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	r.Stop(ctx)
	require.Less(t, time.Since(began), time.Second)
}

// own says that connections are served by h2.
var own bool

// TestMain runs all tests with grpc-go's server and with h2's.
func TestMain(m *testing.M) {
	code := m.Run()
	own = true
	os.Exit(max(code, m.Run()))
}

func parseURLs(t *testing.T, raw ...string) []url.URL {
	var out []url.URL
	for _, s := range raw {
		u, err := url.Parse(s)
		require.NoError(t, err)
		out = append(out, *u)
	}
	return out
}

func (r *rig) checkGRPC(t *testing.T, creds credentials.TransportCredentials) {
	t.Helper()
	target := r.port.Addr().String()
	if r.port.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	answer, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.Status)
}

func (r *rig) get(t *testing.T, scheme string, c *http.Transport) string {
	t.Helper()
	defer c.CloseIdleConnections()
	c.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(r.port.Addr().Network(), r.port.Addr().String())
	}
	answer, err := (&http.Client{Transport: c, Timeout: 5 * time.Second}).Get(scheme + "://127.0.0.1/")
	require.NoError(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(b)
}

var trusting = &tls.Config{InsecureSkipVerify: true}

func TestPlainPortCarriesBoth(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	r.checkGRPC(t, insecure.NewCredentials())
	require.Equal(t, "insecure", (<-r.auth).AuthType())
	require.Equal(t, "hello over HTTP/1.1", r.get(t, "http", &http.Transport{}))
	require.Positive(t, r.traffic.Received.Load())
	require.Positive(t, r.traffic.Sent.Load())
}

func TestSecurePortCarriesBoth(t *testing.T) {
	r := start(t, "https://127.0.0.1:0")
	r.checkGRPC(t, credentials.NewTLS(trusting.Clone()))
	require.Equal(t, "tls", (<-r.auth).AuthType())
	require.Equal(t, "hello over HTTP/1.1", r.get(t, "https", &http.Transport{TLSClientConfig: trusting.Clone()}))
	require.Equal(t, "hello over HTTP/2.0", r.get(t, "https", &http.Transport{TLSClientConfig: trusting.Clone(), ForceAttemptHTTP2: true}))

	// A gRPC client that offers HTTP/1, too, comes through net/http.
	both := trusting.Clone()
	both.NextProtos = []string{"h2", "http/1.1"}
	r.checkGRPC(t, credentials.NewTLS(both))
	require.Equal(t, "tls", (<-r.auth).AuthType())
}

// What comes through net/http may have no larger headers than what doesn't.
func TestLargeHeaders(t *testing.T) {
	r := start(t, "https://127.0.0.1:0")
	both := trusting.Clone()
	both.NextProtos = []string{"h2", "http/1.1"}
	c, err := grpc.NewClient(r.port.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(both)))
	require.NoError(t, err)
	defer c.Close()
	check := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := healthpb.NewHealthClient(c).Check(metadata.AppendToOutgoingContext(ctx, "large", strings.Repeat("x", n)), &healthpb.HealthCheckRequest{})
		return err
	}
	require.NoError(t, check(60<<10))
	require.ErrorContains(t, check(70<<10), "header list size")
}

func TestOnePortForPlainAndSecure(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	free.Close()
	r := start(t, "http://"+addr, "https://"+addr)
	r.checkGRPC(t, insecure.NewCredentials())
	r.checkGRPC(t, credentials.NewTLS(trusting.Clone()))
	require.Equal(t, "hello over HTTP/1.1", r.get(t, "http", &http.Transport{}))
	require.Equal(t, "hello over HTTP/1.1", r.get(t, "https", &http.Transport{TLSClientConfig: trusting.Clone()}))
}

func TestUnixSockets(t *testing.T) {
	for _, scheme := range []string{"unix", "unixs"} {
		r := start(t, scheme+"://"+filepath.Join(t.TempDir(), "s"))
		if scheme == "unix" {
			r.checkGRPC(t, insecure.NewCredentials())
			require.Equal(t, "hello over HTTP/1.1", r.get(t, "http", &http.Transport{}))
			continue
		}
		r.checkGRPC(t, credentials.NewTLS(trusting.Clone()))
	}
}

func TestDial(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	c, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.Dial(ctx) }))
	require.NoError(t, err)
	defer c.Close()
	answer, err := healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.Status)
	require.Equal(t, "insecure", (<-r.auth).AuthType())
	require.Positive(t, r.traffic.Received.Load())

	// A stream that is open must not hold up a stop.
	w, err := healthpb.NewHealthClient(c).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = w.Recv()
	require.NoError(t, err)
	r.stop(t)
	_, err = w.Recv()
	require.Error(t, err)
	_, err = r.Dial(t.Context())
	require.ErrorIs(t, err, errClosed)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = New(Options{}).Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestPortInUse(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	_, err := Listen("listen-client-urls", parseURLs(t, "http://127.0.0.1:0", "http://"+r.port.Addr().String()), transport.SocketOpts{})
	require.ErrorContains(t, err, "--listen-client-urls http://"+r.port.Addr().String()+": another process listens there already")
	require.ErrorContains(t, err, "address already in use")
}

func TestReusedPort(t *testing.T) {
	opts := transport.SocketOpts{ReusePort: true, ReuseAddress: true}
	first, err := Listen("listen-client-urls", parseURLs(t, "http://127.0.0.1:0"), opts)
	require.NoError(t, err)
	defer CloseAll(first)
	url := "http://" + first[0].Addr().String()
	second, err := Listen("listen-client-urls", parseURLs(t, url), opts)
	require.NoError(t, err)
	CloseAll(second)
	_, err = Listen("listen-client-urls", parseURLs(t, url), transport.SocketOpts{ReuseAddress: true})
	require.ErrorContains(t, err, "address already in use")
}

func TestSecurePortWithoutCertificate(t *testing.T) {
	ports, err := Listen("listen-client-urls", parseURLs(t, "https://127.0.0.1:0"), transport.SocketOpts{})
	require.NoError(t, err)
	defer CloseAll(ports)
	require.ErrorContains(t, New(Options{HTTP: http.NotFoundHandler()}).Serve(ports...), "TLS key/cert must be provided")
	_, err = ClientTLS(transport.TLSInfo{})
	require.ErrorContains(t, err, "must be provided")
}

// A silent or slow connection must neither delay others nor outlive Stop.
func TestSilentAndSlowConnections(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	dial := func() net.Conn {
		c, err := net.Dial("tcp", r.port.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	silent := dial()
	slow := dial()
	for _, b := range []byte("PRI * HTTP/1.1\r\nHost: x\r\n\r\n") { // diverges late from the preface
		_, err := slow.Write([]byte{b})
		require.NoError(t, err)
	}
	slow.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 12)
	_, err := io.ReadFull(slow, buf)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(buf), "HTTP/1.1 "), "%q", buf)
	r.checkGRPC(t, insecure.NewCredentials())

	r.stop(t)
	silent.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = silent.Read(buf)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// A watch never ends by itself: Stop has to close it.
func TestStopCutsStreams(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	c, err := grpc.NewClient(r.port.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer c.Close()
	w, err := healthpb.NewHealthClient(c).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = w.Recv()
	require.NoError(t, err)
	r.stop(t)
	_, err = w.Recv()
	require.Error(t, err)
}

func TestErrReportsALostPort(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	r.port.ln.Close()
	select {
	case err := <-r.Err():
		require.ErrorContains(t, err, r.port.Addr().String())
	case <-time.After(5 * time.Second):
		t.Fatal("no error")
	}
}

type fakeDNS struct{ names, addrs map[string][]string }

func (d fakeDNS) LookupAddr(_ context.Context, a string) ([]string, error) { return d.names[a], nil }
func (d fakeDNS) LookupHost(_ context.Context, h string) ([]string, error) { return d.addrs[h], nil }

func TestPeerCertificateIsForItsAddress(t *testing.T) {
	dns := fakeDNS{
		names: map[string][]string{"10.0.0.1": {"a.example.com."}},
		addrs: map[string][]string{"b.example.com": {"10.0.0.2"}},
	}
	ip := []net.IP{net.ParseIP("10.0.0.3")}
	for _, tc := range []struct {
		cert x509.Certificate
		addr string
		ok   bool
	}{
		{x509.Certificate{}, "10.0.0.9", true},
		{x509.Certificate{IPAddresses: ip}, "10.0.0.3", true},
		{x509.Certificate{IPAddresses: ip}, "10.0.0.4", false},
		{x509.Certificate{DNSNames: []string{"a.example.com"}}, "10.0.0.1", true},
		{x509.Certificate{DNSNames: []string{"*.example.com"}}, "10.0.0.1", true},
		{x509.Certificate{DNSNames: []string{"*.example.org"}}, "10.0.0.1", false},
		{x509.Certificate{DNSNames: []string{"b.example.com"}}, "10.0.0.2", true},
		{x509.Certificate{DNSNames: []string{"b.example.com"}, IPAddresses: ip}, "10.0.0.5", false},
	} {
		err := certificateIsFor(t.Context(), &tc.cert, tc.addr, dns)
		require.Equal(t, tc.ok, err == nil, "%v %v from %s: %v", tc.cert.DNSNames, tc.cert.IPAddresses, tc.addr, err)
	}
}

func TestPeerWithoutCertificateIsRefused(t *testing.T) {
	info, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1"}, 1)
	require.NoError(t, err)
	info.ClientCertAuth, info.TrustedCAFile = true, info.CertFile
	secure, err := PeerTLS(info)
	require.NoError(t, err)
	ports, err := Listen("listen-peer-urls", parseURLs(t, "https://127.0.0.1:0"), transport.SocketOpts{})
	require.NoError(t, err)
	s := New(Options{HTTP: http.NotFoundHandler(), TLS: secure})
	require.NoError(t, s.Serve(ports...))
	defer s.Stop(t.Context())
	_, err = (&http.Client{Transport: &http.Transport{TLSClientConfig: trusting.Clone()}}).Get("https://" + ports[0].Addr().String())
	require.ErrorContains(t, err, "certificate")
}

// Looking for a peer's names takes no longer than it may take to show a protocol: DNS may not answer.
func TestAPeersNamesAreLookedForSoLong(t *testing.T) {
	info, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1"}, 1)
	require.NoError(t, err)
	secure, err := PeerTLS(info)
	require.NoError(t, err)
	ends := make(chan time.Time, 1)
	secure.verify = func(ctx context.Context, _ *tls.Conn) error {
		end, _ := ctx.Deadline()
		ends <- end
		return errors.New("no name")
	}
	ports, err := Listen("listen-peer-urls", parseURLs(t, "https://127.0.0.1:0"), transport.SocketOpts{})
	require.NoError(t, err)
	s := New(Options{HTTP: http.NotFoundHandler(), TLS: secure})
	require.NoError(t, s.Serve(ports...))
	defer s.Stop(t.Context())
	began := time.Now()
	_, err = (&http.Client{Transport: &http.Transport{TLSClientConfig: trusting.Clone()}}).Get("https://" + ports[0].Addr().String())
	require.Error(t, err)
	end := <-ends
	require.False(t, end.Before(began), "it has no end")
	require.False(t, end.After(time.Now().Add(helloTimeout)))
}

// Stop ends requests that have taken over their connections, and waits for them.
func TestStopEndsUpgradedConnections(t *testing.T) {
	r := start(t, "http://127.0.0.1:0")
	entered, ended := make(chan struct{}), make(chan struct{})
	h := r.followed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(ended)
	}))
	in := httptest.NewRequest(http.MethodGet, "/", nil)
	in.Header.Set("Upgrade", "websocket")
	go h.ServeHTTP(httptest.NewRecorder(), in)
	<-entered
	r.stop(t)
	select {
	case <-ended:
	default:
		t.Fatal("it goes on")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, in)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}
