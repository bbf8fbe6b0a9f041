package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// TLS configures the secure ports of a server.
type TLS struct {
	config *tls.Config
	verify func(context.Context, *tls.Conn) error
	side   string // client or peer, for the log
}

// ClientTLS is the TLS of client and metrics ports.
func ClientTLS(info transport.TLSInfo) (*TLS, error) { return newTLS(info, "client") }

// PeerTLS is the TLS of peer ports. In addition to the chain, a peer's
// certificate must be valid for the address that the peer connects from.
func PeerTLS(info transport.TLSInfo) (*TLS, error) {
	t, err := newTLS(info, "peer")
	if err == nil && !info.SkipClientSANVerify {
		t.verify = checkPeerAddress
	}
	return t, err
}

func newTLS(info transport.TLSInfo, side string) (*TLS, error) {
	if info.Empty() {
		return nil, fmt.Errorf("TLS key/cert must be provided for %s URLs with HTTPS scheme", side)
	}
	c, err := info.ServerConfig()
	if err != nil {
		return nil, fmt.Errorf("%s TLS: %w", side, err)
	}
	info.ConfigureCRLVerification(c)
	c.NextProtos = []string{"h2", "http/1.1"}
	c.GetConfigForClient = noteOffer
	return &TLS{config: c, side: side}, nil
}

// noteOffer tells gRPC from browsers: both come out of ALPN as h2, but a gRPC
// client never offers HTTP/1 beside it. One that does all the same is served,
// too, only through net/http, which costs about twice the CPU.
func noteOffer(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*conn); ok {
		c.grpcOnly = slices.Contains(hello.SupportedProtos, "h2") && !slices.Contains(hello.SupportedProtos, "http/1.1")
	}
	return nil, nil
}

// handshake returns nil if the client was refused; the log says why.
func (t *TLS) handshake(ctx context.Context, c *conn, lg *zap.Logger) *tls.Conn {
	secure := tls.Server(c, t.config)
	err := secure.HandshakeContext(ctx)
	if err == nil && t.verify != nil {
		err = t.verify(ctx, secure)
	}
	if err == nil {
		return secure
	}
	log := lg.Warn
	if errors.Is(err, io.EOF) { // a port scan or load balancer
		log = lg.Debug
	}
	state := secure.ConnectionState()
	fields := []zap.Field{zap.String("remote-addr", c.RemoteAddr().String()), zap.String("server-name", state.ServerName)}
	if len(state.PeerCertificates) > 0 {
		fields = append(fields, zap.Strings("dns-names", state.PeerCertificates[0].DNSNames), zap.Stringers("ip-addresses", state.PeerCertificates[0].IPAddresses))
	}
	log("rejected connection on "+t.side+" endpoint", append(fields, zap.Error(err))...)
	secure.Close()
	return nil
}

// checkPeerAddress demands that the certificate, if it names addresses or
// hosts at all, names the one that the peer connects from.
func checkPeerAddress(ctx context.Context, c *tls.Conn) error {
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return nil // a unix socket has no address to compare
	}
	return certificateIsFor(ctx, certs[0], host, net.DefaultResolver)
}

type resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}

func certificateIsFor(ctx context.Context, cert *x509.Certificate, addr string, dns resolver) error {
	if len(cert.IPAddresses) == 0 && len(cert.DNSNames) == 0 {
		return nil
	}
	if ip := net.ParseIP(addr); ip != nil && slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
		return nil
	}
	names, _ := dns.LookupAddr(ctx, addr)
	for _, want := range cert.DNSNames {
		for _, name := range names {
			name = strings.TrimSuffix(name, ".")
			domain, wild := strings.CutPrefix(want, "*")
			if name == want || wild && strings.HasSuffix(name, domain) {
				return nil
			}
		}
		if addrs, err := dns.LookupHost(ctx, want); err == nil && slices.Contains(addrs, addr) {
			return nil
		}
	}
	return fmt.Errorf("tls: %q does not match any of DNSNames %q or addresses %v of the peer's certificate", addr, cert.DNSNames, cert.IPAddresses)
}

// Credentials lets one gRPC server take plain connections and those whose TLS
// handshake this package has done.
func Credentials() credentials.TransportCredentials { return shaken{} }

type shaken struct{}

func (shaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if secure, ok := c.(*tls.Conn); ok {
		return c, credentials.TLSInfo{
			State:          secure.ConnectionState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}, nil
	}
	return c, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

func (shaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("serve: credentials of a server used by a client")
}

func (shaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (shaken) Clone() credentials.TransportCredentials { return shaken{} }
func (shaken) OverrideServerName(string) error         { return nil }

type plainInfo struct{ credentials.CommonAuthInfo }

func (plainInfo) AuthType() string { return "insecure" }
