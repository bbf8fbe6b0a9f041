package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

const (
	// grpc-go does not ping more often than this.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second

	// The larger windows let a full batch be in flight while the next is made;
	// fixed sizes also spare the pings with which grpc-go estimates the link.
	streamWindow = 8 << 20
	connWindow   = 16 << 20
)

// pings have a connection end that is silent. grpc-go compares readings of the wall clock for that, and
// takes the peer for silent once the clock has been set back: so links, which have pulses, don't use them.
var pings = grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout})

// ServerOptions are what a gRPC server needs that this transport is registered
// with; credentials are up to the caller.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		experimental.BufferPool(sessionwire.Pool),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxBatch + 1<<20),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             keepaliveTime / 2,
			PermitWithoutStream: true,
		}),
		// No pings, as for links; a connection whose link was silent is left without streams.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64, MaxConnectionIdle: time.Minute}),
	}
}

// addr is one URL of a peer, ready to be dialled.
type addr struct {
	url     string
	network string
	host    string // host:port, or the socket's path
	tls     *tls.Config
}

func parseURLs(urls []string, conf *tls.Config) ([]addr, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL is known")
	}
	var addrs []addr
	for _, raw := range urls {
		a, err := parseURL(raw, conf)
		if err != nil {
			return nil, fmt.Errorf("URL %q: %w", raw, err)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func parseURL(raw string, conf *tls.Config) (addr, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return addr{}, fmt.Errorf("parse: %w", err)
	}
	a := addr{url: raw, network: "tcp", host: u.Host}
	switch u.Scheme {
	case "http", "https":
	case "unix", "unixs":
		a.network, a.host = "unix", u.Host+u.Path
	default:
		return addr{}, fmt.Errorf("scheme %q is none of http, https, unix, unixs", u.Scheme)
	}
	if u.Scheme == "https" || u.Scheme == "unixs" {
		if conf == nil {
			return addr{}, fmt.Errorf("%s needs TLS settings for peers", u.Scheme)
		}
		a.tls = conf
	}
	if a.network == "tcp" {
		if _, _, err := net.SplitHostPort(u.Host); err != nil {
			return addr{}, fmt.Errorf("host and port are needed: %w", err)
		}
	}
	if a.host == "" {
		return addr{}, errors.New("nothing to dial")
	}
	return a, nil
}

// dial makes a connection for one attempt. Attempts don't share connections:
// each has its own URL, its own error, and no back-off but the peer's.
// connectTimeout bounds the connect of the socket alone.
func (a addr) dial(connectTimeout time.Duration, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if a.tls != nil {
		creds = credentials.NewTLS(a.tls)
	}
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())),
		// Also bypasses proxies of the environment inside the cluster.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, a.network, a.host)
		}),
	}, more...)
	target := a.host
	if a.network == "unix" {
		target = "localhost"
	}
	conn, err := grpc.NewClient("passthrough:///"+target, opts...)
	if err != nil {
		return nil, fmt.Errorf("prepare to dial %s: %w", a.url, err)
	}
	return conn, nil
}
