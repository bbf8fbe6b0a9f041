package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

// guard is a member that requires a token.
type guard struct {
	*fakeMember
	pb.UnimplementedAuthServer
	password *atomic.Value
	late     *atomic.Bool // the password is set between the next login and the stream
	empty    *atomic.Bool // permissions are enforced between the next login and the stream
	deleted  *atomic.Bool // the user, who has a certificate
}

func newGuard(f *fake) guard {
	g := guard{fakeMember: f.members[0], password: new(atomic.Value), late: new(atomic.Bool), empty: new(atomic.Bool), deleted: new(atomic.Bool)}
	g.password.Store("secret")
	return g
}

func (g guard) Authenticate(_ context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if r.Name != "root" || r.Password != g.password.Load() {
		return nil, status.Error(codes.InvalidArgument, "etcdserver: authentication failed, invalid user ID or password")
	}
	return &pb.AuthenticateResponse{Token: "a.token"}, nil
}

func (g guard) Open(s stoapb.Sessions_OpenServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if v := md.Get("token"); len(v) != 1 || v[0] != "a.token" {
		return status.Error(codes.Unauthenticated, "etcdserver: invalid auth token")
	}
	if g.late.Swap(false) {
		return rpctypes.ErrGRPCAuthOldRevision
	}
	if g.empty.Swap(false) {
		return rpctypes.ErrGRPCUserEmpty
	}
	if g.deleted.Load() {
		return rpctypes.ErrGRPCPermissionDenied
	}
	return g.fakeMember.Open(s)
}

func TestTLSAndPassword(t *testing.T) {
	certificate, pool := selfSigned(t)
	f := newFake(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	g := newGuard(f)
	stoapb.RegisterSessionsServer(server, g)
	pb.RegisterAuthServer(server, g)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	cfg := client.Config{Endpoints: []string{"https://" + l.Addr().String()}, TLS: &tls.Config{RootCAs: pool}, Username: "root", Password: "secret"}
	c, err := client.New(cfg)
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)

	cfg.Password = "wrong"
	_, err = client.New(cfg)
	require.Error(t, err)
	cfg.Username, cfg.Password = "", ""
	c, err = client.New(cfg)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Session(testContext(t))
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
}

// guarded is a client with a password, and the member that it knows.
func guarded(t *testing.T) (*fake, guard, *client.Client) {
	f := newFake(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, g := grpc.NewServer(), newGuard(f)
	stoapb.RegisterSessionsServer(server, g)
	pb.RegisterAuthServer(server, g)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	c, err := client.New(client.Config{Endpoints: []string{l.Addr().String()}, Username: "root", Password: "secret"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return f, g, c
}

// A user who can't log in any more opens no session, and one that has lost its connection ends, at once.
func TestAPasswordThatIsNoneAnyMore(t *testing.T) {
	f, g, c := guarded(t)
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	g.password.Store("another")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = c.Session(ctx)
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	require.NoError(t, ctx.Err())
	f.cut(int64(s.ID()))
	select {
	case <-s.Done():
	case <-ctx.Done():
		t.Fatal("the session has not ended")
	}
	require.ErrorIs(t, s.Err(), rpctypes.ErrAuthFailed)
}

// A session whose user's password has been set goes on with another token, if the client's password is that one.
func TestAPasswordThatIsSetAnew(t *testing.T) {
	f, g, c := guarded(t)
	g.late.Store(true)
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)
	old := func() {
		f.set(func() { f.sessions[int64(s.ID())].stream.die(rpctypes.ErrGRPCAuthOldRevision) })
	}
	g.late.Store(true)
	old()
	put := s.PutAsync("k", "w")
	_, err = put.Wait(testContext(t))
	require.NoError(t, err)

	g.password.Store("another")
	old()
	<-s.Done()
	require.ErrorIs(t, s.Err(), rpctypes.ErrAuthFailed)
}

// A session that has been taken up without a user, for permissions weren't enforced then, goes on with its user when they are again.
// One of a client without a user ends at once.
func TestAuthenticationIsEnabled(t *testing.T) {
	f, g, c := guarded(t)
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)
	nobody := func(s *client.Session) {
		f.set(func() { f.sessions[int64(s.ID())].stream.die(rpctypes.ErrGRPCUserEmpty) })
	}
	g.empty.Store(true)
	nobody(s)
	_, err = s.Put(testContext(t), "k", "w")
	require.NoError(t, err)

	s = f.session()
	f.set(func() { f.nobody = true })
	nobody(s)
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the session has not ended")
	}
	require.ErrorIs(t, rpctypes.Error(errors.Unwrap(s.Err())), rpctypes.ErrUserEmpty)
}

// A session whose user has been deleted ends with the reason, also if the user has a certificate, which is no login that fails. One
// that is only refused for a while goes on.
func TestAUserWhoIsDeleted(t *testing.T) {
	f, g, c := guarded(t)
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	g.deleted.Store(true)
	f.cut(int64(s.ID()))
	time.Sleep(100 * time.Millisecond)
	g.deleted.Store(false)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)

	g.deleted.Store(true)
	f.set(func() { f.sessions[int64(s.ID())].stream.die(rpctypes.ErrGRPCAuthOldRevision) })
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the session has not ended")
	}
	require.Equal(t, codes.PermissionDenied, status.Code(s.Err()), "%v", s.Err())
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestUnreachableServer gives up opening with the context, and returns the
// cause.
func TestUnreachableServer(t *testing.T) {
	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = c.Session(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "127.0.0.1:1")
}

// TestOnlyEtcd: opening a session fails at once.
func TestOnlyEtcd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	c, err := client.New(client.Config{Endpoints: []string{l.Addr().String()}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Session(testContext(t))
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
}
