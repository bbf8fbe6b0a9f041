package composed

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/serve"
)

// A Server serves local clients.
type Server struct {
	services *services
	clients  *serve.Server
	meters   *serve.Server
	inFlight atomic.Int64 // calls that end by themselves
	draining atomic.Bool
	// streaming ends when streams without an end of their own have to.
	streaming  context.Context
	endStreams context.CancelFunc

	registry *prometheus.Registry
	handled  *prometheus.CounterVec
	served   map[string]bool // methods
}

// maxMessage bounds a request, in bytes, as in package sidecar.
const maxMessage = 64 << 20

// New makes a server. It returns before there is a connection to any cluster. maxStreams bounds the
// calls in progress of one local connection; 0: no bound.
func New(cfg compose.Config, maxStreams uint32, lg *zap.Logger) (*Server, error) {
	if maxStreams == 0 {
		maxStreams = math.MaxUint32
	}
	services, err := newServices(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{services: services}
	s.streaming, s.endStreams = context.WithCancel(context.Background())
	s.measure()
	server := grpc.NewServer(
		grpc.StatsHandler(services.clients),
		grpc.UnknownServiceHandler(refuse),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.Creds(serve.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}),
	)
	services.register(server)
	s.served = map[string]bool{}
	for name, service := range server.GetServiceInfo() {
		for _, m := range service.Methods {
			s.served["/"+name+"/"+m.Name] = true
		}
	}
	s.clients = serve.New(serve.Options{GRPC: server, HTTP: s.pages(), MaxStreams: maxStreams, Logger: lg})
	s.meters = serve.New(serve.Options{HTTP: s.pages(), Logger: lg})
	return s, nil
}

func (s *Server) measure() {
	s.registry = prometheus.NewRegistry()
	s.handled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stoa_sidecar_handled_total", Help: "Calls of local clients that have ended, by method and gRPC code.",
	}, []string{"method", "code"})
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s.handled,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stoa_sidecar_in_flight_requests", Help: "Calls of local clients in progress, without streams that have no end of their own.",
		}, func() float64 { return float64(s.inFlight.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stoa_sidecar_composed_clients", Help: "Connections of local clients, each with a client of the composition.",
		}, func() float64 { return float64(s.services.clients.open.Load()) }))
}

func (s *Server) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.inFlight.Add(1)
	a, err := handle(ctx, r)
	s.inFlight.Add(-1)
	s.ended(info.FullMethod, err)
	return a, err
}

// errStopping has the code upon which etcd's clients open a stream again.
var errStopping = status.Error(codes.Unavailable, "stoa sidecar: it is shutting down")

func (s *Server) stream(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.streaming, func() { cancel(errStopping) })()
	err := handle(srv, &bounded{st, ctx})
	if err != nil && context.Cause(ctx) == errStopping {
		err = errStopping
	}
	s.ended(info.FullMethod, err)
	return err
}

// bounded is a stream whose context ends with the server, too.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b *bounded) Context() context.Context { return b.ctx }

// ended counts a call. Methods that aren't served are one label: clients choose their names.
func (s *Server) ended(method string, err error) {
	if !s.served[method] {
		method = "other"
	}
	s.handled.WithLabelValues(method, status.Code(err).String()).Inc()
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

const drainTick = 10 * time.Millisecond

// Stop is a graceful shutdown, as that of package sidecar.
func (s *Server) Stop(ctx context.Context) {
	s.draining.Store(true)
	go func() {
		for s.inFlight.Load() > 0 && ctx.Err() == nil {
			time.Sleep(drainTick)
		}
		s.endStreams()
	}()
	s.clients.Stop(ctx)
	s.meters.Stop(ctx)
	s.services.close()
}
