package rpc

import (
	"context"

	"google.golang.org/grpc"
)

// What every method has in common (count it, refuse it without a leader or the right) is put
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
		in := captures.Get().(*capture)
		n := &c.counts[in.stripe]
		n.started.Add(1)
		began := s.clock()
		ctx, span := s.o.Tracer.Begin(ctx, c.name)
		record := s.audit.begin(ctx, c)
		err := s.guard.check(ctx)
		if err == nil {
			err = s.checkLearner(c)
		}
		if err == nil {
			err = s.checkRight(ctx, c)
		}
		if err != nil {
			span.End(err)
			c.ended(n, err, s.clock()-began)
			record.end(ctx, c, record.undone(next, srv, ctx, dec), nil, err)
			in.release()
			return nil, err
		}
		in.dec = dec
		resp, err := next(srv, ctx, in.fn, interceptor)
		span.End(err)
		took := s.clock() - began
		n.received.Add(1)
		if err == nil {
			n.sent.Add(1)
		}
		c.ended(n, err, took)
		record.end(ctx, c, in.req, resp, err)
		if took > s.o.WarningUnary && s.o.WarningUnary > 0 {
			s.warnOfSlow(ctx, c, took, in.req, resp)
		}
		in.release()
		return resp, err
	}
}

func (s *Server) wrapStream(next grpc.StreamHandler, c *call) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		n := &c.counts[nextStripe()]
		n.started.Add(1)
		began := s.clock()
		record := s.audit.begin(stream.Context(), c)
		var last *remembering
		if record.a != nil {
			last = &remembering{ServerStream: stream}
			stream = last
		}
		err := s.guard.check(stream.Context())
		if err == nil {
			err = s.checkLearner(c)
		}
		if err == nil {
			err = s.checkRight(stream.Context(), c)
		}
		if err == nil {
			guarded, release := s.guard.watch(&counted{stream, n})
			err = next(srv, guarded)
			release()
		}
		c.ended(n, err, s.clock()-began)
		if last != nil {
			record.end(stream.Context(), c, last.request(), nil, err)
		}
		return err
	}
}
