package sidecar

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/sidecar/namespace"
)

// Config configures a Server.
type Config struct {
	Upstream Upstream
	// MaxConcurrentStreams bounds the calls in progress of one local connection; 0: no
	// bound.
	MaxConcurrentStreams uint32
	// Unbatched has each request forwarded as a call of its own.
	Unbatched bool
	// Uncoalesced has each watch forwarded as a watch of its own.
	Uncoalesced bool
	// UncoalescedKeepAlives has each stream of keep-alives forwarded as one of its own.
	UncoalescedKeepAlives bool
	// Namespace is a prefix of keys: local clients see only keys that begin with it, and without it.
	// Empty: all keys.
	Namespace string
	// OwnTransport serves connections of clients with package h2 instead of grpc-go.
	OwnTransport bool
	Logger       *zap.Logger
}

// maxMessage bounds a request, in bytes: no member takes one as large, so that the refusal of a
// request that is too large is a member's.
const maxMessage = 64 << 20

// Windows of fixed sizes spare the pings by which grpc-go estimates a connection.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
)

// A Server serves local clients.
type Server struct {
	lg      *zap.Logger
	up      *upstream
	forward *forwarder
	// namespace is nil if clients see all keys.
	namespace *translator
	lanes     *lanes        // nil: none
	watches   []*watches    // without and with a required leader; none: each is forwarded
	renewing  []*keepAlives // likewise
	metrics   *metrics
	grpc      *grpc.Server
	own       *h2.Server // the same services
	clients   *serve.Server
	meters    *serve.Server
	inFlight  atomic.Int64
	draining  atomic.Bool
	// streaming ends when streams without an end of their own have to.
	streaming  context.Context
	endStreams context.CancelFunc
}

// New makes a server. It returns before there is a connection to the cluster.
func New(c Config) (*Server, error) {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.MaxConcurrentStreams == 0 {
		c.MaxConcurrentStreams = math.MaxUint32
	}
	up, err := connect(c.Upstream, c.Logger)
	if err != nil {
		return nil, err
	}
	s := &Server{lg: c.Logger, up: up, metrics: newMetrics(), forward: &forwarder{up: up, options: callOptions()}}
	s.streaming, s.endStreams = context.WithCancel(context.Background())
	s.grpc, s.own = s.onGRPC(c), s.onOwn(c)
	if !c.Unbatched {
		s.lanes = openLanes(up, s.metrics, c.Logger)
	}
	if !c.Uncoalesced {
		q, t := &question{up: up}, newTurns(maxCatchUps)
		s.watches = []*watches{openWatches(s.forward, q, t, false, s.metrics, c.Logger), openWatches(s.forward, q, t, true, s.metrics, c.Logger)}
		s.metrics.watch(s.watches)
	}
	if !c.UncoalescedKeepAlives {
		s.renewing = []*keepAlives{openKeepAlives(s.forward, false, s.metrics), openKeepAlives(s.forward, true, s.metrics)}
		s.metrics.keepAlive(s.renewing)
	}
	if c.Namespace != "" {
		s.namespace = &translator{namespace.New(c.Namespace)}
	}
	for _, d := range services() {
		s.register(d)
	}
	ports := serve.Options{GRPC: s.grpc, HTTP: s.pages(), MaxStreams: c.MaxConcurrentStreams, Logger: c.Logger}
	if c.OwnTransport {
		ports.Direct = s.own
	}
	s.clients = serve.New(ports)
	s.meters = serve.New(serve.Options{HTTP: s.pages(), Logger: c.Logger})
	return s, nil
}

func (s *Server) onGRPC(c Config) *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnknownServiceHandler(s.other),
		grpc.Creds(serve.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(c.MaxConcurrentStreams),
		// Local clients may ask for signs of life as often as they like.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}),
	)
}

func (s *Server) onOwn(c Config) *h2.Server {
	return h2.NewServer(h2.Options{
		Codec: newCodec(), Creds: serve.Credentials(), Unknown: s.other,
		MaxRecvMessage: maxMessage, StreamWindow: streamWindow, ConnWindow: connWindow, MaxStreams: c.MaxConcurrentStreams,
		PingInterval: 1, PingsWithoutStreams: true,
	})
}

// Serve starts to accept connections on the ports of clients and those for metrics, and
// returns.
func (s *Server) Serve(clients, meters []*serve.Port) error {
	if err := s.meters.Serve(meters...); err != nil {
		return err
	}
	return s.clients.Serve(clients...)
}

// Err yields the first error that closed a port of clients without a call of Stop.
func (s *Server) Err() <-chan error { return s.clients.Err() }

// begin counts a call in progress, until done.
func (s *Server) begin(c *counted) (done func(error)) {
	s.inFlight.Add(1)
	s.metrics.inFlight.Inc()
	return func(err error) {
		s.inFlight.Add(-1)
		s.metrics.inFlight.Dec()
		c.ended(err)
	}
}

const drainTick = 10 * time.Millisecond

// Stop is a graceful shutdown: no connection is accepted any more, and calls in progress may
// end until ctx does.
func (s *Server) Stop(ctx context.Context) {
	s.draining.Store(true)
	go func() {
		for s.inFlight.Load() > 0 && ctx.Err() == nil {
			time.Sleep(drainTick)
		}
		// The others would hold the server up. They are ended one by one, and not with their
		// connections: an answer may be on its way there.
		s.endStreams()
	}()
	s.clients.Stop(ctx)
	s.meters.Stop(ctx)
	if s.lanes != nil {
		s.lanes.close()
	}
	for _, ws := range s.watches {
		ws.close()
	}
	for _, k := range s.renewing {
		k.close()
	}
	s.up.close()
}
