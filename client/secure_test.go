package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

// guard is a member that requires TLS and a token.
type guard struct {
	*fakeMember
	pb.UnimplementedAuthServer
}

func (guard) Authenticate(_ context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if r.Name != "root" || r.Password != "secret" {
		return nil, status.Error(codes.InvalidArgument, "etcdserver: authentication failed, invalid user ID or password")
	}
	return &pb.AuthenticateResponse{Token: "a.token"}, nil
}

func (g guard) Open(s stoapb.Sessions_OpenServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if v := md.Get("token"); len(v) != 1 || v[0] != "a.token" {
		return status.Error(codes.Unauthenticated, "etcdserver: invalid auth token")
	}
	return g.fakeMember.Open(s)
}

func TestTLSAndPassword(t *testing.T) {
	certificate, pool := selfSigned(t)
	f := newFake(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	g := guard{fakeMember: f.members[0]}
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
