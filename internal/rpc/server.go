package rpc

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/memory"
	"github.com/stoa-kv/stoa/internal/tracing"
)

// frameOverhead is what a request may have beyond its own size, as in etcd.
const frameOverhead = 512 * 1024

// Options are the limits of the client's side. The zero value of each is
// etcd's default.
type Options struct {
	MaxRequestBytes      int           // 1.5 MiB
	MaxTxnOps            int           // 128
	MaxConcurrentStreams uint32        // no limit
	KeepAliveMinTime     time.Duration // 5 s: pings closer than this end the connection; negative: any may be
	KeepAliveInterval    time.Duration // 2 h; negative: the server sends no pings
	KeepAliveTimeout     time.Duration // 20 s; negative likewise
	ProgressInterval     time.Duration // 10 min; at least 100 ms
	ElectionTimeout      time.Duration // 1 s: how often streams that demand a leader are checked
	WarningUnary         time.Duration // unary requests that take longer are logged; 0: none

	// Memory is what calls may hold together; nil: any amount.
	Memory *memory.Budget
	// Audit is where clients' requests are recorded; nil: nowhere. NewServer's caller
	// closes it.
	Audit *audit.Log

	Creds   credentials.TransportCredentials // nil: none
	Metrics prometheus.Registerer            // nil: not counted
	// Extensive adds to the metrics how long calls take.
	Extensive bool
	Tracer    *tracing.Tracer // nil: no request is traced
	// Field is told of each field of requests' headers, on stoa's own transport; nil: no function is.
	Field  func(name, value string)
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = 1.5 * 1024 * 1024
	}
	if o.MaxTxnOps <= 0 {
		o.MaxTxnOps = 128
	}
	if o.MaxConcurrentStreams == 0 {
		o.MaxConcurrentStreams = math.MaxUint32
	}
	if o.KeepAliveMinTime == 0 {
		o.KeepAliveMinTime = 5 * time.Second
	}
	if o.KeepAliveInterval == 0 {
		o.KeepAliveInterval = 2 * time.Hour
	}
	if o.KeepAliveTimeout == 0 {
		o.KeepAliveTimeout = 20 * time.Second
	}
	if o.ProgressInterval <= 0 {
		o.ProgressInterval = 10 * time.Minute
	}
	o.ProgressInterval = max(o.ProgressInterval, 100*time.Millisecond)
	if o.ElectionTimeout <= 0 {
		o.ElectionTimeout = time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Server is the gRPC server of one node with all of etcd's services on it.
// Serve and the rest are grpc's; call Stop, and then Close.
type Server struct {
	*grpc.Server
	// Own has the same services, on stoa's own transport.
	Own    *h2.Server
	node   Node
	o      Options
	health *health.Server
	guard  *leaderGuard
	calls  *calls
	audit  *auditor
	since  time.Time // of clock
	unpark func()

	drain   chan struct{} // closed when no requests are taken any more
	drained sync.Once
}

// NewServer builds the server. More services may be registered on it until
// Serve is called.
func NewServer(n Node, o Options) *Server {
	o = o.withDefaults()
	s := &Server{node: n, o: o, health: health.NewServer(), guard: newLeaderGuard(n, o.ElectionTimeout), calls: newCalls(o.Metrics, o.Extensive, o.Memory), audit: newAuditor(o.Audit, n.User), since: time.Now(), unpark: parkStacks(), drain: make(chan struct{})}
	s.Server = grpc.NewServer(s.options()...)
	s.Own = h2.NewServer(s.ownOptions())
	h := header{n}
	kv := &kvServer{header: h, kv: n, maxOps: o.MaxTxnOps, chunk: o.MaxRequestBytes, memory: o.Memory}
	s.register(kvService(), kv)
	s.register(pb.Watch_ServiceDesc, &watchServer{header: h, watcher: n, o: o, audit: s.audit})
	s.register(pb.Lease_ServiceDesc, &leaseServer{header: h, lessor: n})
	s.register(pb.Maintenance_ServiceDesc, &maintenanceServer{header: h, m: n, lg: o.Logger})
	s.register(pb.Cluster_ServiceDesc, &clusterServer{header: h, cluster: n})
	s.register(pb.Auth_ServiceDesc, &authServer{header: h, auth: n})
	q := &queues{kvServer: kv, watcher: n, lessor: n}
	s.register(lockpb.Lock_ServiceDesc, &lockServer{queues: q})
	s.register(lockpb.Election_ServiceDesc, &electionServer{queues: q})
	healthpb.RegisterHealthServer(s, s.health)
	return s
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	s.Server.RegisterService(d, impl)
	s.Own.RegisterService(d, impl)
}

// Stop stops both transports.
func (s *Server) Stop() {
	s.Own.Stop()
	s.Server.Stop()
}

// MaxMessage is the size of the largest message that the server takes, in bytes.
func (s *Server) MaxMessage() int { return s.o.MaxRequestBytes + frameOverhead }

// SetServing sets the status of the health service. Once it is not serving,
// sessions end when their accepted requests are replied to.
func (s *Server) SetServing(ok bool) {
	if !ok {
		s.drained.Do(func() { close(s.drain) })
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// Close ends the server's goroutines other than grpc's.
func (s *Server) Close() {
	s.guard.close()
	s.unpark()
}

// Fixed windows spare the pings by which grpc-go estimates a connection, one to
// each request of a client that waits for its answers. What a stream's window
// holds is what a session that is held back may have in memory here; a
// connection's is given back as data arrives.
const (
	streamWindow = 512 << 10
	connWindow   = 4 << 20
)

// options are limits, and windows. Tried with 1,000 clients on 100 connections
// and found to make no difference, or for the worse, to CPU per call or to memory:
// NumStreamWorkers (see stacks.go), SharedWriteBuffer, read and write buffers of
// 8 and 64 KiB.
func (s *Server) options() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{sessionwire.Codec(), s.o.Memory}),
		experimental.BufferPool(sessionwire.Pool),
		grpc.MaxRecvMsgSize(s.MaxMessage()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(h2.MaxHeaderList),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(s.o.MaxConcurrentStreams),
		grpc.InTapHandle(s.calls.arrived),
		grpc.KeepaliveEnforcementPolicy(s.o.enforcement()),
		grpc.KeepaliveParams(s.o.pings()),
	}
	if s.o.Creds != nil {
		opts = append(opts, grpc.Creds(s.o.Creds))
	}
	return opts
}

// ownOptions are options, of the other transport.
func (s *Server) ownOptions() h2.Options {
	pings := s.o.pings()
	o := h2.Options{
		Codec: codec{sessionwire.Codec(), s.o.Memory}, BufferPool: sessionwire.Pool, Creds: s.o.Creds, Arrived: s.calls.arrived,
		MaxRecvMessage: s.MaxMessage(), StreamWindow: streamWindow, ConnWindow: connWindow, MaxStreams: s.o.MaxConcurrentStreams,
		Inline:       []string{pb.KV_Range_FullMethodName, pb.KV_Put_FullMethodName, pb.KV_DeleteRange_FullMethodName, pb.KV_Txn_FullMethodName},
		Field:        s.o.Field,
		PingInterval: s.o.enforcement().MinTime, KeepAliveInterval: pings.Time, KeepAliveTimeout: pings.Timeout,
	}
	if s.o.Memory != nil {
		o.Room, o.StreamRoom = arriving(s.o.Memory), lasting(s.o.Memory)
	}
	return o
}

func (o Options) enforcement() keepalive.EnforcementPolicy {
	return keepalive.EnforcementPolicy{MinTime: max(o.KeepAliveMinTime, 1)} // 0 is grpc's own default
}

func (o Options) pings() keepalive.ServerParameters {
	if o.KeepAliveInterval < 0 || o.KeepAliveTimeout < 0 {
		return keepalive.ServerParameters{Time: math.MaxInt64}
	}
	return keepalive.ServerParameters{Time: o.KeepAliveInterval, Timeout: o.KeepAliveTimeout}
}
