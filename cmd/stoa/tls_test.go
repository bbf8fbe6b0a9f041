package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/test/process"
)

// secured opens the ports of a server and serves them without one: pages that answer
// everything, and, on the peer port, what answers a server that introduces itself.
func secured(t *testing.T, args ...string) *ports {
	t.Helper()
	cfg := settings(t, t.TempDir(), append([]string{"--listen-client-urls=https://127.0.0.1:0", "--listen-peer-urls=https://127.0.0.1:0"}, args...)...)
	p, err := openPorts(cfg, zap.NewNop())
	require.NoError(t, err)
	pages := serve.New(serve.Options{TLS: p.clientTLS, HTTP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	for _, open := range [][]*serve.Port{p.client, p.http, p.metrics} {
		require.NoError(t, pages.Serve(open...))
	}
	require.NoError(t, p.servePeers(func(*peerpb.Introduction) (*peerpb.Introduction, error) { return &peerpb.Introduction{Name: "it"}, nil }))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		pages.Stop(ctx)
		p.stopPeers()
	})
	return p
}

// visit gets a page of a port, and returns what TLS has agreed on.
func visit(port *serve.Port, as *tls.Config) (*tls.ConnectionState, error) {
	rt := &http.Transport{TLSClientConfig: as, DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, port.Addr().Network(), port.Addr().String())
	}}
	scheme := "https"
	if as == nil {
		scheme = "http"
	}
	answer, err := (&http.Client{Transport: rt, Timeout: time.Minute}).Get(scheme + "://127.0.0.1/version")
	if err != nil {
		return nil, err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return answer.TLS, nil
}

const strong, weak = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256

// Each option that keeps visitors out admits the right ones, and those that it refuses are
// admitted without it.
func TestTLSOptionsRefuse(t *testing.T) {
	a, foreign := process.NewAuthority(t), process.NewAuthority(t)
	a.Issue("named", &x509.Certificate{DNSNames: []string{"app.example"}, Subject: pkix.Name{CommonName: "app"}})
	a.Revoke(a.Issue("revoked", &x509.Certificate{}))
	as := func(name string, change func(*tls.Config)) *tls.Config {
		c := a.Client(name)
		if change != nil {
			change(c)
		}
		return c
	}
	stranger := a.Client("")
	stranger.Certificates = foreign.Client("client").Certificates
	upTo12 := func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }
	type visitors map[string]*tls.Config
	for _, tc := range []struct {
		sides         []string
		before, flags []string // %s: the side's prefix
		good, bad     visitors
	}{
		{[]string{"", "peer-"}, nil, []string{"--%sclient-cert-auth", "--%strusted-ca-file=" + a.File("ca.pem")},
			visitors{"certified": a.Client("client")}, visitors{"uncertified": a.Client(""), "certified by others": stranger}},
		{[]string{"", "peer-"}, nil, []string{"--%strusted-ca-file=" + a.File("ca.pem")},
			visitors{"certified": a.Client("client")}, visitors{"uncertified": a.Client(""), "certified by others": stranger}},
		{[]string{""}, a.Flags(""), []string{"--client-crl-file=" + a.File("crl.der")},
			visitors{"certified": a.Client("client")}, visitors{"revoked": a.Client("revoked")}},
		{[]string{"peer-"}, a.Flags("peer-"), []string{"--peer-crl-file=" + a.File("crl.der")},
			visitors{"certified": a.Client("client")}, visitors{"revoked": a.Client("revoked")}},
		{[]string{""}, a.Flags(""), []string{"--client-cert-allowed-hostname=other.example,app.example"},
			visitors{"named": a.Client("named")}, visitors{"without a name": a.Client("client")}},
		{[]string{"peer-"}, append(a.Flags("peer-"), "--peer-skip-client-san-verification"), []string{"--peer-cert-allowed-hostname=app.example"},
			visitors{"named": a.Client("named")}, visitors{"without a name": a.Client("client")}},
		{[]string{"peer-"}, append(a.Flags("peer-"), "--peer-skip-client-san-verification"), []string{"--peer-cert-allowed-cn=other,app"},
			visitors{"named": a.Client("named")}, visitors{"with another name": a.Client("client")}},
		{[]string{"", "peer-"}, nil, []string{"--tls-min-version=TLS1.3"},
			visitors{"1.3": a.Client("")}, visitors{"1.2": as("", upTo12)}},
		{[]string{"", "peer-"}, nil, []string{"--tls-max-version=TLS1.2"},
			visitors{"1.2": a.Client("")}, visitors{"1.3": as("", func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })}},
		{[]string{"", "peer-"}, nil, []string{"--cipher-suites=" + strong},
			visitors{"strong": as("", upTo12)}, visitors{"weak": as("", func(c *tls.Config) { upTo12(c); c.CipherSuites = []uint16{weak} })}},
	} {
		for _, side := range tc.sides {
			flags := []string{"--cert-file=" + a.File("server.pem"), "--key-file=" + a.File("server.key"), "--peer-cert-file=" + a.File("server.pem"), "--peer-key-file=" + a.File("server.key")}
			flags = append(flags, tc.before...)
			var more []string
			for _, f := range tc.flags {
				if f[:4] == "--%s" {
					f = fmt.Sprintf(f, side)
				}
				more = append(more, f)
			}
			t.Run(fmt.Sprint(side, more), func(t *testing.T) {
				port := func(p *ports) *serve.Port {
					if side == "" {
						return p.client[0]
					}
					return p.peer[0]
				}
				open, guarded := port(secured(t, flags...)), port(secured(t, append(flags, more...)...))
				for name, conf := range tc.good {
					_, err := visit(open, conf)
					require.NoError(t, err, name)
					_, err = visit(guarded, conf)
					require.NoError(t, err, name)
				}
				for name, conf := range tc.bad {
					_, err := visit(open, conf)
					require.NoError(t, err, name)
					_, err = visit(guarded, conf)
					require.Error(t, err, name)
				}
			})
		}
	}
}

// A certificate that names addresses is good at those alone, unless this isn't to be checked.
func TestPeerSkipClientSANVerification(t *testing.T) {
	a := process.NewAuthority(t)
	a.Issue("elsewhere", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}})
	_, err := visit(secured(t, append(a.Flags("peer-"), a.Flags("")...)...).peer[0], a.Client("elsewhere"))
	require.Error(t, err)
	p := secured(t, append(append(a.Flags("peer-"), a.Flags("")...), "--peer-skip-client-san-verification")...)
	_, err = visit(p.peer[0], a.Client("elsewhere"))
	require.NoError(t, err)
	_, err = visit(p.client[0], a.Client("elsewhere")) // as in etcd
	require.NoError(t, err)
}

// The files are read at each handshake, the authorities' excepted, as in etcd.
func TestTLSFilesAreReadAgain(t *testing.T) {
	a := process.NewAuthority(t)
	client := a.Issue("client", &x509.Certificate{})
	a.Revoke()
	p := secured(t, append(append(a.Flags(""), a.Flags("peer-")...), "--client-crl-file="+a.File("crl.der"), "--peer-crl-file="+a.File("crl.der"))...)
	ports := []*serve.Port{p.client[0], p.peer[0]}
	for range 2 {
		server := a.Issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
		for _, port := range ports {
			state, err := visit(port, a.Client("client"))
			require.NoError(t, err)
			require.Equal(t, server.SerialNumber, state.PeerCertificates[0].SerialNumber)
		}
	}
	a.Revoke(client)
	for _, port := range ports {
		_, err := visit(port, a.Client("client"))
		require.Error(t, err)
	}
}

func TestAutoTLSCertificates(t *testing.T) {
	p := secured(t, "--auto-tls", "--peer-auto-tls", "--self-signed-cert-validity=3", "--tls-min-version=TLS1.3")
	for port, side := range map[*serve.Port]string{p.client[0]: "client", p.peer[0]: "peer"} {
		state, err := visit(port, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		cert := state.PeerCertificates[0]
		require.WithinDuration(t, time.Now().AddDate(3, 0, 0), cert.NotAfter, 72*time.Hour)
		require.True(t, cert.IPAddresses[0].IsLoopback())
		made, err := tls.LoadX509KeyPair(filepath.Join(p.cfg.DataDir, "fixtures", side, "cert.pem"), filepath.Join(p.cfg.DataDir, "fixtures", side, "key.pem"))
		require.NoError(t, err)
		require.Equal(t, made.Certificate[0], cert.Raw)
		_, err = visit(port, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		require.Error(t, err)
	}
}

// All ports of clients demand what the client port demands.
func TestPortsOfPagesAreSecured(t *testing.T) {
	a := process.NewAuthority(t)
	socket := filepath.Join(t.TempDir(), "s")
	p := secured(t, append(append(a.Flags(""), a.Flags("peer-")...), "--listen-client-urls=unixs://"+socket, "--advertise-client-urls=unixs://"+socket,
		"--listen-client-http-urls=https://127.0.0.1:0", "--listen-metrics-urls=https://127.0.0.1:0,http://localhost:0")...)
	require.Len(t, p.metrics, 2)
	for _, port := range []*serve.Port{p.client[0], p.http[0], p.metrics[0], p.metrics[1]} {
		if port.URL.Scheme == "http" {
			_, err := visit(port, nil)
			require.NoError(t, err)
			continue
		}
		for name, ok := range map[string]bool{"client": true, "": false} {
			_, err := visit(port, a.Client(name))
			require.Equal(t, ok, err == nil, "%s as %q: %v", port.URL.String(), name, err)
		}
		_, err := visit(port, nil)
		require.Error(t, err)
	}
}

// dialled is a server for a member that dials others.
func dialled(t *testing.T, a *process.Authority, name string) (url string, shown chan string) {
	shown = make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- r.TLS.PeerCertificates[0].Subject.CommonName
		w.Header().Set("X-Etcd-Cluster-ID", "1")
		fmt.Fprint(w, "[]")
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: a.Client(name).Certificates}
	s.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, shown
}

// A member shows its certificate to those that it dials, and looks at theirs.
func TestPeersThatAreDialled(t *testing.T) {
	a, foreign := process.NewAuthority(t), process.NewAuthority(t)
	a.Revoke(a.Issue("revoked", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}))
	dial := func(url string, flags ...string) error {
		conf, err := secured(t, append(append(a.Flags("peer-"), a.Flags("")...), flags...)...).peerClientTLS()
		require.NoError(t, err)
		_, _, err = serve.FetchMembers(t.Context(), conf, []string{url})
		return err
	}
	url, shown := dialled(t, a, "server")
	require.NoError(t, dial(url))
	require.Equal(t, "server", <-shown)
	require.NoError(t, dial(url, "--peer-client-cert-file="+a.File("client.pem"), "--peer-client-key-file="+a.File("client.key")))
	require.Equal(t, "client", <-shown)
	require.NoError(t, dial(url, "--peer-cert-allowed-cn=server"))
	require.Error(t, dial(url, "--peer-cert-allowed-cn=other"))

	url, _ = dialled(t, foreign, "server")
	require.ErrorContains(t, dial(url), "unknown authority")
	url, _ = dialled(t, a, "revoked")
	require.NoError(t, dial(url))
	require.ErrorContains(t, dial(url, "--peer-crl-file="+a.File("crl.der")), "revoked")
}

// With certificates demanded, nothing of a peer port answers a stranger: neither the pages nor
// any method that there is.
func TestStrangersOnThePeerPort(t *testing.T) {
	a, foreign := process.NewAuthority(t), process.NewAuthority(t)
	p := secured(t, append(a.Flags("peer-"), a.Flags("")...)...)
	stranger := a.Client("")
	stranger.Certificates = foreign.Client("client").Certificates
	for name, as := range map[string]*tls.Config{"a member": a.Client("server"), "without a certificate": a.Client(""), "with a foreign one": stranger, "without TLS": nil} {
		creds := insecure.NewCredentials()
		if as != nil {
			creds = credentials.NewTLS(as)
		}
		conn, err := grpc.NewClient(p.peer[0].Addr().String(), grpc.WithTransportCredentials(creds))
		require.NoError(t, err)
		defer conn.Close()
		for _, m := range peerpb.Peer_ServiceDesc.Methods {
			err := conn.Invoke(t.Context(), "/stoa.peer.v1.Peer/"+m.MethodName, &emptypb.Empty{}, &emptypb.Empty{})
			require.Equal(t, name == "a member", status.Code(err) != codes.Unavailable, "%s: %s: %v", name, m.MethodName, err)
		}
		for _, d := range peerpb.Peer_ServiceDesc.Streams {
			s, err := conn.NewStream(t.Context(), &d, "/stoa.peer.v1.Peer/"+d.StreamName)
			if err == nil {
				err = s.RecvMsg(&emptypb.Empty{})
			}
			require.Error(t, err)
			require.Equal(t, name == "a member", strings.Contains(err.Error(), "the server is starting"), "%s: %s: %v", name, d.StreamName, err)
		}
		for _, page := range []string{"version", "members"} {
			got, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: as, DisableKeepAlives: true}}).Get(
				map[bool]string{true: "https", false: "http"}[as != nil] + "://" + p.peer[0].Addr().String() + "/" + page)
			require.Equal(t, name == "a member", err == nil, "%s: %s: %v", name, page, err)
			if err == nil {
				got.Body.Close()
			}
		}
	}
}

// Certificates that are missing or don't fit end the start.
func TestTLSFilesThatStopAStart(t *testing.T) {
	a := process.NewAuthority(t)
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("x"), 0o600))
	for _, args := range [][]string{
		{"--trusted-ca-file=/no/such"}, {"--peer-trusted-ca-file=/no/such"}, {"--key-file=" + a.File("client.key")}, {"--peer-cert-file=" + broken},
		{"--peer-client-cert-file=" + a.File("client.pem")}, {"--peer-cert-allowed-cn=a", "--peer-cert-allowed-hostname=b"},
	} {
		cfg := settings(t, t.TempDir(), append(append(append(a.Flags(""), a.Flags("peer-")...), "--listen-client-urls=https://127.0.0.1:0", "--listen-peer-urls=https://127.0.0.1:0"), args...)...)
		_, err := openPorts(cfg, zap.NewNop())
		require.Error(t, err, "%v", args)
	}
}

// A list of revoked certificates that can't be read is a warning, and accepts none.
func TestUnreadableListOfRevokedCertificates(t *testing.T) {
	a := process.NewAuthority(t)
	core, logs := observer.New(zap.WarnLevel)
	checkRevoked(a.File("crl.der"), zap.New(core))
	require.Len(t, logs.TakeAll(), 1)
	port := secured(t, append(append(a.Flags(""), a.Flags("peer-")...), "--client-crl-file="+a.File("crl.der"))...).client[0]
	_, err := visit(port, a.Client("client"))
	require.Error(t, err)
	a.Revoke()
	checkRevoked(a.File("crl.der"), zap.New(core))
	require.Zero(t, logs.Len())
	_, err = visit(port, a.Client("client"))
	require.NoError(t, err)
}

// Others refuse a certificate that has expired, or names another host, and this server's log says so.
func TestOwnCertificatesAreLookedAt(t *testing.T) {
	a := process.NewAuthority(t)
	here := []net.IP{net.IPv4(127, 0, 0, 1)}
	before := time.Now().Add(-2 * time.Hour)
	for name, tc := range map[string]struct {
		cert x509.Certificate
		says []string
	}{
		"right":    {x509.Certificate{IPAddresses: here}, nil},
		"expired":  {x509.Certificate{IPAddresses: here, NotBefore: before, NotAfter: before.Add(time.Hour)}, []string{"client.pem", "peer.pem"}},
		"too soon": {x509.Certificate{IPAddresses: here, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}, []string{"client.pem", "peer.pem"}},
		"another":  {x509.Certificate{DNSNames: []string{"elsewhere"}}, []string{"peer.pem"}}, // at which name clients look is not known
	} {
		t.Run(name, func(t *testing.T) {
			client, peer := tc.cert, tc.cert
			a.Issue("client", &client)
			a.Issue("peer", &peer)
			core, logs := observer.New(zap.WarnLevel)
			cfg := settings(t, t.TempDir(), "--listen-client-urls=https://127.0.0.1:0", "--listen-peer-urls=https://127.0.0.1:0",
				"--initial-advertise-peer-urls=https://127.0.0.1:2380", "--initial-cluster=default=https://127.0.0.1:2380",
				"--cert-file="+a.File("client.pem"), "--key-file="+a.File("client.key"), "--peer-cert-file="+a.File("peer.pem"), "--peer-key-file="+a.File("peer.key"))
			p, err := openPorts(cfg, zap.New(core))
			require.NoError(t, err)
			p.close()
			var says []string
			for _, line := range logs.All() {
				if file, is := line.ContextMap()["cert-file"].(string); is {
					says = append(says, filepath.Base(file))
				}
			}
			require.Equal(t, tc.says, says)
		})
	}
}
