package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/gateway"
	"github.com/stoa-kv/stoa/internal/memory"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/rpc"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/tracing"
	ptransport "github.com/stoa-kv/stoa/internal/transport"
	"github.com/stoa-kv/stoa/internal/ui"
)

// ports are all listeners of a server. They are opened before anything touches
// the data, and served one kind after the other.
type ports struct {
	cfg *config.Config
	lg  *zap.Logger

	peerTLSInfo                   transport.TLSInfo
	clientTLS, peerTLS            *serve.TLS
	client, http, metrics, peer   []*serve.Port
	rpc                           *rpc.Server
	field                         func(name, value string) // is told of requests' headers; nil: no function is
	toGateway                     *grpc.ClientConn         // nil: there is no gateway
	peerRPC                       *grpc.Server
	audit                         *audit.Log // nil: none
	door                          *ptransport.Door
	members                       members
	clients, pages, meters, peers *serve.Server // pages is for --listen-client-http-urls
	failed                        chan error
}

func openPorts(cfg *config.Config, lg *zap.Logger) (p *ports, err error) {
	p = &ports{cfg: cfg, lg: lg, failed: make(chan error, 1), field: debugged(cfg)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	flags := map[string]string{} // by address
	for _, l := range []struct {
		flag string
		urls []url.URL
		to   *[]*serve.Port
	}{
		{"listen-peer-urls", cfg.ListenPeerURLs, &p.peer},
		{"listen-client-urls", cfg.ListenClientURLs, &p.client},
		{"listen-client-http-urls", cfg.ListenClientHTTPURLs, &p.http},
		{"listen-metrics-urls", cfg.ListenMetricsURLs, &p.metrics},
	} {
		for _, u := range l.urls {
			if other := flags[u.Host+u.Path]; other != "" && other != l.flag && u.Port() != "0" {
				return p, fmt.Errorf("--%s %s: --%s has the same address, and each needs its own", l.flag, &u, other)
			}
			flags[u.Host+u.Path] = l.flag
		}
		if *l.to, err = serve.Listen(l.flag, l.urls, cfg.SocketOpts); err != nil {
			return p, err
		}
	}
	return p, p.prepareTLS()
}

// prepareTLS loads the certificates, or makes them for --auto-tls.
func (p *ports) prepareTLS() (err error) {
	c := p.cfg
	clientInfo, err := p.certificates(c.ClientTLS, c.ClientAutoTLS, "client", append(c.ListenClientURLs[:len(c.ListenClientURLs):len(c.ListenClientURLs)], c.ListenClientHTTPURLs...))
	if err != nil {
		return err
	}
	if p.peerTLSInfo, err = p.certificates(c.PeerTLS, c.PeerAutoTLS, "peer", c.ListenPeerURLs); err != nil {
		return err
	}
	if serve.Secure(p.metrics) && clientInfo.Empty() {
		return errors.New("client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url") // etcd's words
	}
	if serve.Secure(p.client) || serve.Secure(p.http) || serve.Secure(p.metrics) {
		checkOwn(clientInfo.CertFile, nil, p.lg)
		if p.clientTLS, err = serve.ClientTLS(clientInfo); err != nil {
			return err
		}
	}
	if serve.Secure(p.peer) {
		checkOwn(p.peerTLSInfo.CertFile, c.AdvertisePeerURLs, p.lg)
		p.peerTLS, err = serve.PeerTLS(p.peerTLSInfo)
	}
	return err
}

func (p *ports) certificates(info transport.TLSInfo, auto bool, side string, urls []url.URL) (transport.TLSInfo, error) {
	info.Logger = p.lg
	checkRevoked(info.CRLFile, p.lg)
	if !auto {
		return info, nil
	}
	if !info.Empty() {
		p.lg.Warn("ignoring auto TLS since certs given", zap.String("side", side))
		return info, nil
	}
	var hosts []string
	for _, u := range urls {
		hosts = append(hosts, u.Host)
	}
	made, err := transport.SelfCert(p.lg, filepath.Join(p.cfg.DataDir, "fixtures", side), hosts, p.cfg.CertYears)
	if err != nil {
		return info, fmt.Errorf("making a certificate for %s URLs: %w", side, err)
	}
	made.MinVersion, made.MaxVersion, made.CipherSuites, made.Logger = info.MinVersion, info.MaxVersion, info.CipherSuites, p.lg
	return made, nil
}

// build makes the servers that will serve the ports.
func (p *ports) build(n *node.Node, m *metrics.Metrics, b *memory.Budget, t *tracing.Tracer) error {
	c := p.cfg
	p.rpc = rpc.NewServer(n, rpc.Options{
		MaxRequestBytes: int(c.MaxRequestBytes), MaxTxnOps: int(c.MaxTxnOps), MaxConcurrentStreams: c.MaxConcurrentStreams,
		KeepAliveMinTime: unlessZero(c.KeepAlive.MinTime), KeepAliveInterval: unlessZero(c.KeepAlive.Interval), KeepAliveTimeout: unlessZero(c.KeepAlive.Timeout),
		ProgressInterval: c.WatchProgressNotifyInterval, ElectionTimeout: c.ElectionTimeout,
		WarningUnary: c.WarningUnaryDuration,
		Memory:       b,
		Audit:        p.audit,
		Creds:        serve.Credentials(), Metrics: m.Registry, Extensive: c.Metrics == "extensive", Tracer: t, Logger: p.lg,
		Field: p.field,
	})
	p.rpc.ServePartitions(partitions{n})
	p.rpc.ServeQuotas(quotas{n})
	p.rpc.ServeSessions(n)
	p.rpc.ServeExtensions(n)
	if c.EnableReflection {
		if err := p.rpc.ServeReflection(); err != nil {
			return err
		}
	}
	var traffic serve.Traffic
	m.Traffic(traffic.Received.Load, traffic.Sent.Load)
	shown := serve.Pages{
		Health: health{n}, HealthCounter: m, HealthTimeout: requestTimeout(c), Metrics: m.Handler(),
		Version: func() string { return clusterVersion(n) },
		Pprof:   c.EnablePprof || c.Log.Level == "debug", Hosts: c.HostWhitelist, Origins: c.CORS, Logger: p.lg,
		NamesCount: func() bool { return c.ClientTLS.ClientCertAuth && n.AuthEnabled() },
	}
	if c.EnableGateway || c.EnableUI {
		translated, err := p.gateway()
		if err != nil {
			return err
		}
		if c.EnableGateway {
			shown.Gateway = translated
		}
		if c.EnableUI {
			shown.UI = ui.New(ui.Options{Gateway: translated, Users: n.AuthEnabled})
		}
	}
	client := serve.Options{
		GRPC: p.rpc.Server, HTTP: serve.ClientPages(shown), TLS: p.clientTLS,
		MaxStreams: c.MaxConcurrentStreams, Traffic: &traffic, Scarce: b.Scarce, Logger: p.lg,
	}
	if c.GRPCTransport == "own" {
		client.Direct = p.rpc.Own
	}
	if len(p.http) > 0 {
		onlyPages := client
		onlyPages.GRPC, onlyPages.Direct = nil, nil
		p.pages = serve.New(onlyPages)
		client.HTTP = nil
	}
	p.clients = serve.New(client)
	p.meters = serve.New(serve.Options{HTTP: serve.MetricsPages(shown), TLS: p.clientTLS, Logger: p.lg})
	return nil
}

// gateway translates JSON over HTTP into calls of the gRPC server, over a connection within
// the process.
func (p *ports) gateway() (_ http.Handler, err error) {
	p.toGateway, err = grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.clients.Dial(ctx) }),
		grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("connecting the gateway: %w", err)
	}
	return gateway.New(p.toGateway, p.rpc.MaxMessage())
}

// unlessZero has 0 mean "off", as in the settings, and not the default.
func unlessZero(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// requestTimeout is etcd's: time for a disk, and for an election to fail and
// one to succeed.
func requestTimeout(c *config.Config) time.Duration { return 5*time.Second + 2*c.ElectionTimeout }

// servePeers answers introductions. Links are refused until letPeersIn.
func (p *ports) servePeers(introduce func(*peerpb.Introduction) (*peerpb.Introduction, error)) error {
	p.peerRPC = grpc.NewServer(append(ptransport.ServerOptions(), grpc.Creds(serve.Credentials()))...)
	p.door = ptransport.NewDoor(p.peerRPC, introduce)
	p.peers = serve.New(serve.Options{GRPC: p.peerRPC, HTTP: serve.PeerPages(&p.members), TLS: p.peerTLS, Logger: p.lg})
	p.lg.Info("serving peer traffic", zap.Stringer("urls", types.URLs(p.cfg.ListenPeerURLs)))
	return p.start(p.peers, p.peer)
}

// letPeersIn begins the links with the other members.
func (p *ports) letPeersIn(n *node.Node) {
	p.members.n.Store(n)
	n.OpenDoor(p.door)
}

func (p *ports) serveMetrics() error {
	if len(p.metrics) == 0 {
		return nil
	}
	p.lg.Info("serving metrics", zap.Stringer("urls", types.URLs(p.cfg.ListenMetricsURLs)), zap.Bool("ui", p.cfg.EnableUI))
	return p.start(p.meters, p.metrics)
}

// serveClients logs the text that etcd's tests wait for.
func (p *ports) serveClients() error {
	p.rpc.SetServing(true)
	if err := p.start(p.clients, p.client); err != nil {
		return err
	}
	if p.pages != nil {
		if err := p.start(p.pages, p.http); err != nil {
			return err
		}
	}
	p.lg.Info("ready to serve client requests")
	for _, port := range append(p.client[:len(p.client):len(p.client)], p.http...) {
		p.lg.Info("serving client traffic", zap.Stringer("address", port.Addr()), zap.String("url", port.URL.String()))
	}
	return nil
}

func (p *ports) start(s *serve.Server, on []*serve.Port) error {
	if err := s.Serve(on...); err != nil {
		return err
	}
	go func() {
		if err, ok := <-s.Err(); ok {
			select {
			case p.failed <- err:
			default:
			}
		}
	}()
	return nil
}

// errs yields the first error of any port that is served.
func (p *ports) errs() <-chan error { return p.failed }

func (p *ports) stopClients(drain time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	p.rpc.SetServing(false)
	for _, s := range []*serve.Server{p.pages, p.clients, p.meters} {
		if s != nil {
			s.Stop(ctx)
		}
	}
	p.rpc.Close()
	if p.toGateway != nil {
		p.toGateway.Close()
	}
	p.endAudit(auditLimit)
	serve.CloseAll(p.client)
	serve.CloseAll(p.http)
	serve.CloseAll(p.metrics)
}

// stopPeers cuts the links: they never end by themselves.
func (p *ports) stopPeers() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.peers.Stop(ctx)
	serve.CloseAll(p.peer)
}

// close ends a start that failed: no port is served but, perhaps, those of the peers.
func (p *ports) close() {
	if p.peers != nil {
		p.stopPeers()
	}
	for _, open := range [][]*serve.Port{p.client, p.http, p.metrics, p.peer} {
		serve.CloseAll(open)
	}
}
