package composed

import (
	"context"
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/sidecar/front"
)

// A Server serves local clients.
type Server struct {
	*front.Front
	services  *services
	executing *executing
	over      context.CancelFunc
	following sync.WaitGroup
	handled   *prometheus.CounterVec
	served    map[string]bool // methods
}

// maxMessage bounds a request, in bytes, as in package sidecar.
const maxMessage = 64 << 20

// Limits bound local clients; 0: no bound.
type Limits struct {
	MaxConcurrentStreams uint32 // calls in progress of one connection: more wait in the client
	MaxClients           int    // connections that have used the composition, each with sessions of its own: more are refused
	Calls                front.Limits
}

// New makes a server. It returns before there is a connection to any cluster.
func New(cfg compose.Config, e Executors, limits Limits, lg *zap.Logger) (*Server, error) {
	if err := e.check(cfg); err != nil {
		return nil, err
	}
	maxStreams := limits.MaxConcurrentStreams
	if maxStreams == 0 {
		maxStreams = math.MaxUint32
	}
	services, err := newServices(cfg, limits.MaxClients)
	if err != nil {
		return nil, err
	}
	s := &Server{services: services}
	server := grpc.NewServer(
		grpc.StatsHandler(services.clients),
		grpc.UnknownServiceHandler(refuse),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.Creds(limits.Calls.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(h2.MaxHeaderList),
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
	registry := s.measure()
	s.executing = e.execute(services.clients.root, registry, lg)
	life, over := context.WithCancel(context.Background())
	s.over = over
	services.followAll(life, lg, &s.following)
	s.Front = front.New(front.Options{GRPC: server, MaxStreams: maxStreams, Registry: registry, Health: s.healthy, Ready: s.ready, Logger: lg})
	return s, nil
}

func (s *Server) measure() *prometheus.Registry {
	s.handled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stoa_sidecar_handled_total", Help: "Calls of local clients that have ended, by method and gRPC code.",
	}, []string{"method", "code"})
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s.handled,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stoa_sidecar_composed_clients", Help: "Connections of local clients, each with a client of the composition.",
		}, func() float64 { return float64(s.services.clients.open.Load()) }))
	return r
}

// healthy is for /health: all clusters answer linearizable reads.
func (s *Server) healthy(ctx context.Context) error {
	_, err := s.services.check(ctx)
	return err
}

// ready is for /readyz: a cluster answers. Keys of others are no reason to stop an application.
func (s *Server) ready(ctx context.Context) error {
	answered, err := s.services.check(ctx)
	if answered > 0 {
		return nil
	}
	return err
}

func (s *Server) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	done := s.Begin()
	defer done()
	allowance, bytes, err := front.Admit(ctx, func() int { return sizeOf(r) })
	var a any
	if err == nil {
		a, err = handle(ctx, r)
		allowance.Release(bytes)
	}
	s.ended(info.FullMethod, err)
	return a, err
}

func sizeOf(r any) int {
	if m, ok := r.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// errStopping has the code upon which etcd's clients open a stream again.
var errStopping = status.Error(codes.Unavailable, "stoa sidecar: "+front.ErrDraining.Error())

// stream ends those that have no end of their own when calls in progress have ended: all but ranges.
func (s *Server) stream(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == pb.KV_RangeStream_FullMethodName {
		defer s.Begin()()
		err := handle(srv, st)
		s.ended(info.FullMethod, err)
		return err
	}
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.Streaming(), func() { cancel(errStopping) })()
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

// Stop is a graceful shutdown: no connection is accepted any more, and calls in progress may
// end until ctx does.
func (s *Server) Stop(ctx context.Context) {
	s.executing.stop()
	s.Front.Stop(ctx)
	s.executing.wait()
	s.over()
	s.following.Wait()
	s.services.close()
}
