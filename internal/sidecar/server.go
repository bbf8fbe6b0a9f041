package sidecar

import (
	"context"
	"math"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/sidecar/front"
	"github.com/stoa-kv/stoa/internal/sidecar/namespace"
	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// Config configures a Server.
type Config struct {
	Upstream Upstream
	// MaxConcurrentStreams bounds the calls in progress of one local connection; 0: no
	// bound.
	MaxConcurrentStreams uint32
	// Limits bound the calls in progress of one local connection: more are refused.
	Limits front.Limits
	// MaxWatches bounds the coalesced watches of one stream; 0: no bound.
	MaxWatches int
	// Unbatched has each request forwarded as a call of its own.
	Unbatched bool
	// Recent bounds the events that are kept for watches that others follow; zero: watchOptions.
	Recent relay.Options
	// Uncoalesced has each watch forwarded as a watch of its own.
	Uncoalesced bool
	// UncoalescedKeepAlives has each stream of keep-alives forwarded as one of its own.
	UncoalescedKeepAlives bool
	// Namespace is a prefix of keys: local clients see only keys that begin with it, and without it.
	// Empty: all keys.
	Namespace string
	// WaitWhenAway has calls wait while no member can be reached, until their deadline, instead of failing.
	WaitWhenAway bool
	// Cache are prefixes of keys, of the cluster's, whose reads are answered from memory. It needs coalesced
	// watches.
	Cache []string
	// CacheMemory bounds the memory for these keys, in bytes.
	CacheMemory int64
	// OwnTransport serves connections of clients with package h2 instead of grpc-go.
	OwnTransport bool
	// LogAway has the log say that no member answers, and why, and that one does again. For that the cluster is asked at the beginning, too.
	LogAway bool
	Logger  *zap.Logger
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
	caches    *caches       // nil: none
	metrics   *metrics
	ended     context.CancelFunc
	grpc      *grpc.Server
	own       *h2.Server // the same services
	*front.Front
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
	s := &Server{lg: c.Logger, up: up, metrics: newMetrics(), forward: &forwarder{up: up, options: callOptions(), wait: c.WaitWhenAway}}
	s.grpc, s.own = s.onGRPC(c), s.onOwn(c)
	if !c.Unbatched {
		s.lanes = openLanes(up, s.metrics, c.Logger)
	}
	if !c.Uncoalesced {
		q, t := newQuestion(up), newTurns(maxCatchUps)
		s.watches = []*watches{openWatches(s.forward, q, t, false, c.recent(), s.metrics, c.Logger), openWatches(s.forward, q, t, true, c.recent(), s.metrics, c.Logger)}
		s.metrics.watch(s.watches)
		if len(c.Cache) > 0 {
			s.caches = openCaches(c, up, q, s.lanes, s.watches[0], s.metrics)
			s.metrics.cache(s.caches)
		}
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
	ports := front.Options{GRPC: s.grpc, MaxStreams: c.MaxConcurrentStreams, Registry: s.metrics.registry, Health: s.healthy, Ready: s.ready, Logger: c.Logger}
	if s.caches != nil {
		ports.Cached = s.caches.serving
	}
	if c.OwnTransport {
		ports.Direct = s.own
	}
	s.Front = front.New(ports)
	life, ended := context.WithCancel(context.Background())
	if s.ended = ended; c.LogAway {
		go s.follow(life)
	}
	return s, nil
}

func (c *Config) recent() relay.Options {
	o := c.Recent
	if o == (relay.Options{}) {
		o = watchOptions
	}
	o.Watchers = c.MaxWatches
	return o
}

func (s *Server) onGRPC(c Config) *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnknownServiceHandler(s.other),
		grpc.Creds(c.Limits.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(h2.MaxHeaderList),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(c.MaxConcurrentStreams),
		// Local clients may ask for signs of life as often as they like.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}),
	)
}

func (s *Server) onOwn(c Config) *h2.Server {
	return h2.NewServer(h2.Options{
		Codec: newCodec(), Creds: c.Limits.Credentials(), Unknown: s.other,
		MaxRecvMessage: maxMessage, StreamWindow: streamWindow, ConnWindow: connWindow, MaxStreams: c.MaxConcurrentStreams,
		PingInterval: 1, PingsWithoutStreams: true,
	})
}

// begin counts a call in progress, until done.
func (s *Server) begin(c *counted) (done func(error)) {
	end := s.Begin()
	return func(err error) {
		end()
		c.ended(err)
	}
}

// Stop is a graceful shutdown: no connection is accepted any more, and calls in progress may
// end until ctx does.
func (s *Server) Stop(ctx context.Context) {
	s.Front.Stop(ctx)
	s.ended()
	if s.caches != nil {
		s.caches.close()
	}
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
