package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

func TestPeerOfAnotherClusterIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	require.NoError(t, a.UpdatePeer(2, []string{"http://127.0.0.1:1"}))
	foreign := start(t, setup{id: 2, cluster: 0xbad, peers: map[uint64]string{1: "http://" + a.addr}})
	for _, s := range []*server{a, foreign} {
		s.awaitLog(t, "server 2 belongs to cluster bad, server 1 belongs to cluster c1")
	}
	require.False(t, foreign.Connected(1))
}

func TestSecondServerWithOneIDIsRefused(t *testing.T) {
	servers := cluster(t, 2, nil)
	second := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + servers[1].addr}})
	for _, s := range []*server{servers[1], second} {
		s.awaitLog(t, "two servers have the id 2")
	}
	require.False(t, second.Connected(1))
	require.True(t, servers[2].Connected(1), "the first one is left alone")
	md := second.identity(1)
	for range 3 { // it comes back, from other ports
		require.Equal(t, codes.AlreadyExists, status.Code(linkWith(t, servers[1], md)))
	}
	require.Equal(t, 1, servers[1].logs.FilterMessage("refused a link").Len())

	// Once the first is gone there is no reason to refuse any more.
	servers[2].kill()
	second.awaitLink(t, 1)
	require.True(t, second.Send(1, call(5)))
	eventually(t, func() bool { return len(servers[1].calls(2)) == 1 }, "the second one is heard")
}

// A server that was killed and started again may find itself connected still, but not for
// long. A copy finds that every time, and its data is not noted.
func TestACopyOfAServerThatRunsIsExpelled(t *testing.T) {
	var met sync.Map
	silence := time.Second // long enough that the first one isn't silent by mistake
	a := start(t, setup{id: 1, silence: silence, meet: func(_ uint64, m Mark, _ uint64) error { met.Store(m, true); return nil }})
	b := start(t, setup{id: 2, silence: silence, peers: map[uint64]string{1: "http://" + a.addr}, mark: Mark{0xb, 1}})
	require.NoError(t, a.UpdatePeer(2, []string{"http://" + b.addr}))
	b.awaitLink(t, 1)
	told := make(chan error, 1)
	start(t, setup{id: 2, silence: silence, peers: map[uint64]string{1: "http://" + a.addr}, mark: Mark{0xb, 2}, expelled: func(err error) {
		select {
		case told <- err:
		default:
		}
	}})
	select {
	case err := <-told:
		require.ErrorIs(t, err, ErrDuplicateID)
		require.ErrorContains(t, err, "two servers have the id 2")
	case <-time.After(30 * time.Second):
		require.Fail(t, "it is not told")
	}
	require.True(t, b.Connected(1))
	_, noted := met.Load(Mark{0xb, 2})
	require.False(t, noted)
}

func TestOwnIDOnTheOtherSideIsRefused(t *testing.T) {
	a := start(t, setup{id: 1})
	// A server configured with id 1 as well, for which a is server 2.
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

// A peer whose data is not what it was is told so, and stops; the log of the one that
// refuses it says so once.
func TestPeerWithOtherDataIsExpelled(t *testing.T) {
	a := start(t, setup{id: 1, mark: Mark{Data: 0xa, Starts: 3}, meet: func(peer uint64, m Mark, start uint64) error {
		require.Equal(t, Mark{Data: 0xb, Starts: 5}, m)
		require.NotZero(t, start)
		return Outdated(fmt.Sprintf("server %d has lost its data", peer))
	}})
	require.NoError(t, a.UpdatePeer(2, []string{"http://127.0.0.1:1"})) // before it dials: else it is refused as one that is unknown, first
	told := make(chan error, 100)
	start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, mark: Mark{Data: 0xb, Starts: 5}, expelled: func(err error) { told <- err }})
	require.EqualError(t, <-told, "server 2 has lost its data")
	md := a.identity(1)
	md.Set(keyFrom, "2")
	md.Set(keyData, "b")
	md.Set(keyStarts, "5")
	for range 3 { // it comes back
		require.Equal(t, codes.DataLoss, status.Code(linkWith(t, a, md)))
	}
	require.Equal(t, 1, a.logs.FilterMessage("refused a link").Len())
	require.False(t, a.Connected(2))
}

// A server that can't write down that a peer has come, since its disk is full for instance, has nothing against the peer's data:
// that one goes on, and has a link once this one can.
func TestPeerThatCanNotBeNotedComesAgain(t *testing.T) {
	for _, known := range []bool{true, false} {
		var full atomic.Bool
		full.Store(true)
		a := start(t, setup{id: 1, mark: Mark{Data: 0xa, Starts: 3}, meet: func(uint64, Mark, uint64) error {
			if full.Load() {
				return fmt.Errorf("writing the record: %w", syscall.ENOSPC)
			}
			return nil
		}})
		if known {
			require.NoError(t, a.UpdatePeer(2, []string{"http://127.0.0.1:1"}))
		}
		b := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, mark: Mark{Data: 0xb, Starts: 5}, urls: []string{"http://127.0.0.1:1"},
			expelled: func(err error) { t.Errorf("it is expelled: %v", err) }})
		b.awaitLog(t, "no space left on device")
		a.awaitLog(t, "no space left on device")
		require.False(t, b.Connected(1))
		full.Store(false)
		b.awaitLink(t, 1)
	}
}

// The one that dials looks, too.
func TestPeerWithOtherDataIsNotUsed(t *testing.T) {
	a := start(t, setup{id: 1, mark: Mark{Data: 0xa, Starts: 3}})
	b := start(t, setup{id: 2, peers: map[uint64]string{1: "http://" + a.addr}, meet: func(peer uint64, m Mark, _ uint64) error {
		return fmt.Errorf("server %d has data %x", peer, m.Data)
	}})
	require.NoError(t, a.UpdatePeer(2, []string{"http://" + b.addr}))
	b.awaitLog(t, "server 1 has data a")
	require.False(t, b.Connected(1))
}

func TestIntroductions(t *testing.T) {
	s := grpc.NewServer(ServerOptions()...)
	door := NewDoor(s, func(q *peerpb.Introduction) (*peerpb.Introduction, error) {
		if q.From == 9 {
			return nil, errors.New("too early")
		}
		return &peerpb.Introduction{From: q.To, To: q.From}, nil
	})
	l := listen(t, "")
	go s.Serve(l)
	t.Cleanup(s.Stop)
	urls := []string{"http://127.0.0.1:1", "http://" + l.Addr().String()}
	a, err := Introduce(t.Context(), urls, nil, &peerpb.Introduction{From: 2, To: 1})
	require.NoError(t, err)
	require.EqualValues(t, 1, a.From)
	_, err = Introduce(t.Context(), urls, nil, &peerpb.Introduction{From: 9, To: 1})
	require.ErrorContains(t, err, "too early")
	require.ErrorContains(t, err, "connection refused")
	_, err = Introduce(t.Context(), []string{"ftp://x"}, nil, &peerpb.Introduction{})
	require.ErrorContains(t, err, "ftp")
	clients, l2 := grpc.NewServer(ServerOptions()...), listen(t, "") // a client port
	go clients.Serve(l2)
	t.Cleanup(clients.Stop)
	_, err = Introduce(t.Context(), []string{"http://" + l2.Addr().String()}, nil, &peerpb.Introduction{From: 2, To: 1})
	require.ErrorContains(t, err, "this is no peer URL of a member")

	// Links wait until there is a transport behind the door.
	b := start(t, setup{id: 2, peers: map[uint64]string{1: urls[1]}})
	b.awaitLog(t, "the server is starting")
	inside, err := New(Options{ID: 1, ClusterID: testCluster, Handler: newInbox(), Peers: map[uint64][]string{2: {"http://" + b.addr}}, Silence: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(inside.Close)
	door.Open(inside)
	b.awaitLink(t, 1)
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
	f.Add("1", "c1", "2", "3", "ffffffffffffffff", "4", "a", "5")
	f.Add("", "-1", "x", "10000000000000000", "+1", "", "", "")
	f.Fuzz(func(t *testing.T, protocol, cluster, from, to, incarnation, partitions, data, starts string) {
		md := metadata.Pairs(keyProtocol, protocol, keyCluster, cluster, keyFrom, from, keyTo, to,
			keyIncarnation, incarnation, keyPartitions, partitions, keyData, data, keyStarts, starts)
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
