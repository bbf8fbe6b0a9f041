package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func TestPeerOfAnotherClusterIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	require.NoError(t, a.UpdatePeer(2, []string{"http://127.0.0.1:1"}))
	stranger := start(t, setup{id: 2, cluster: 0xbad, peers: map[uint64]string{1: "http://" + a.addr}})
	for _, s := range []*server{a, stranger} {
		s.awaitLog(t, "server 2 belongs to cluster bad, server 1 belongs to cluster c1")
	}
	require.False(t, stranger.Connected(1))
}

func TestSecondServerWithOneIDIsRefused(t *testing.T) {
	servers := cluster(t, 2, nil)
	second := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + servers[1].addr}})
	for _, s := range []*server{servers[1], second} {
		s.awaitLog(t, "two servers have the id 2")
	}
	require.False(t, second.Connected(1))
	require.True(t, servers[2].Connected(1), "the first one is left alone")

	// Once the first is gone there is no reason to refuse any more.
	servers[2].kill()
	second.awaitLink(t, 1)
	require.True(t, second.Send(1, call(5)))
	eventually(t, func() bool { return len(servers[1].calls(2)) == 1 }, "the second one is heard")
}

func TestOwnIDOnTheOtherSideIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	// Somebody configured with id 1 as well, who believes that a is server 2.
	b := start(t, setup{id: 1, peers: map[uint64]string{2: "http://" + a.addr}})
	for _, s := range []*server{a, b} {
		s.awaitLog(t, "two servers have the id 1")
	}
}

func TestWrongAddressIsRefused(t *testing.T) {
	servers := cluster(t, 2, nil)
	a := start(t, setup{id: 3, peers: map[uint64]string{1: "http://" + servers[2].addr}})
	a.awaitLog(t, "server 3 was looking for server 1 at this address and found server 2")
}

func TestUnknownServerIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	b := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}})
	b.awaitLog(t, "server 2 is not a member of cluster c1 that server 1 knows of")
}

func TestOtherProtocolIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	md := a.identity(1)
	md.Set(keyFrom, "2")
	md.Set(keyProtocol, "7f")
	err := linkWith(t, a, md)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "protocol 127")
}

func TestOtherNumberOfPartitionsIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	md := a.identity(1)
	md.Set(keyFrom, "2")
	md.Set(keyPartitions, "7")
	err := linkWith(t, a, md)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "server 2 has 7 partitions")
}

func TestUnidentifiedDiallerIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	require.Equal(t, codes.InvalidArgument, status.Code(linkWith(t, a, metadata.MD{})))
	md := a.identity(1)
	md.Set(keyIncarnation, "not hex")
	require.Equal(t, codes.InvalidArgument, status.Code(linkWith(t, a, md)))
}

// linkWith opens a link by hand and returns how it was refused.
func linkWith(t *testing.T, s *server, md metadata.MD) error {
	stream, err := client(t, s).Link(metadata.NewOutgoingContext(t.Context(), md))
	require.NoError(t, err)
	_, err = stream.Recv()
	return err
}

func client(t *testing.T, s *server) peerpb.PeerClient {
	conn, err := addr{url: s.addr, network: "tcp", host: s.addr}.dial(time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return peerpb.NewPeerClient(conn)
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("1", "c1", "2", "3", "ffffffffffffffff", "4")
	f.Add("", "-1", "x", "10000000000000000", "+1", "")
	f.Fuzz(func(t *testing.T, protocol, cluster, from, to, incarnation, partitions string) {
		md := metadata.Pairs(keyProtocol, protocol, keyCluster, cluster, keyFrom, from, keyTo, to,
			keyIncarnation, incarnation, keyPartitions, partitions)
		who, err := parseIdentity(md)
		if err != nil {
			require.Zero(t, who)
		}
	})
}

func TestTLS(t *testing.T) {
	ca, serverConf, clientConf := certificates(t)
	withTLS := setup{id: 1, tls: serverConf, tlsDial: clientConf}
	a := start(t, withTLS)
	withTLS.id, withTLS.peers = 2, map[uint64]string{1: "https://" + a.addr}
	b := start(t, withTLS)
	require.NoError(t, a.UpdatePeer(2, []string{"https://" + b.addr}))
	a.awaitLink(t, 2)
	b.awaitLink(t, 1)
	require.True(t, a.Send(2, call(3)))
	eventually(t, func() bool { return len(b.calls(1)) == 1 }, "it arrives")

	// Without a certificate, or without TLS, there is no way in.
	bare := &tls.Config{RootCAs: ca}
	for _, s := range []setup{
		{id: 3, tlsDial: bare, peers: map[uint64]string{1: "https://" + a.addr}},
		{id: 3, peers: map[uint64]string{1: "http://" + a.addr}},
	} {
		outsider := start(t, s)
		outsider.awaitLog(t, "no link to the peer")
		require.False(t, outsider.Connected(1))
	}
}

func certificates(t *testing.T) (*x509.CertPool, *tls.Config, *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stoa test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	serverConf := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	clientConf := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
	return pool, serverConf, clientConf
}
