package rpc

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What every method has in common (count it, refuse it without a leader) is put
// around the handlers in a service's description, once, and not into grpc's
// interceptors: those cost a closure and two more allocations for each call.

// register adds a service with its methods wrapped.
func (s *Server) register(desc grpc.ServiceDesc, impl any) {
	methods := make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		m.Handler = s.wrapUnary(m.Handler, s.calls.of(desc.ServiceName, m.MethodName, "unary"))
		methods[i] = m
	}
	streams := make([]grpc.StreamDesc, len(desc.Streams))
	for i, d := range desc.Streams {
		kind := "server_stream"
		if d.ClientStreams {
			kind = "bidi_stream"
		}
		d.Handler = s.wrapStream(d.Handler, s.calls.of(desc.ServiceName, d.StreamName, kind))
		streams[i] = d
	}
	desc.Methods, desc.Streams = methods, streams
	s.RegisterService(&desc, impl)
}

type unaryHandler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

func (s *Server) wrapUnary(next unaryHandler, c *call) unaryHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c.started.Inc()
		if err := s.guard.check(ctx); err != nil {
			c.ended(err)
			return nil, err
		}
		resp, err := next(srv, ctx, dec, interceptor)
		c.ended(err)
		return resp, err
	}
}

func (s *Server) wrapStream(next grpc.StreamHandler, c *call) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		c.started.Inc()
		err := s.guard.check(stream.Context())
		if err == nil {
			guarded, release := s.guard.watch(stream)
			err = next(srv, guarded)
			release()
		}
		c.ended(err)
		return err
	}
}

// calls counts what clients ask, under the names that etcd's servers use.
type calls struct {
	started, handled *prometheus.CounterVec
}

func newCalls(r prometheus.Registerer) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	c := &calls{
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_started_total",
			Help: "Total number of RPCs started on the server.",
		}, labels),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_handled_total",
			Help: "Total number of RPCs completed on the server, regardless of success or failure.",
		}, append(labels, "grpc_code")),
	}
	if r != nil {
		r.MustRegister(c.started, c.handled)
	}
	return c
}

// call is the counters of one method, looked up once.
type call struct {
	started prometheus.Counter
	byCode  [codes.Unauthenticated + 1]prometheus.Counter
}

func (c *calls) of(service, method, kind string) *call {
	m := &call{started: c.started.WithLabelValues(kind, service, method)}
	for code := range m.byCode {
		m.byCode[code] = c.handled.WithLabelValues(kind, service, method, codes.Code(code).String())
	}
	return m
}

func (c *call) ended(err error) {
	code := codes.OK
	if err != nil {
		if code = status.Code(err); code == codes.Unknown {
			code = status.FromContextError(err).Code()
		}
	}
	if int(code) >= len(c.byCode) {
		code = codes.Unknown
	}
	c.byCode[code].Inc()
}
