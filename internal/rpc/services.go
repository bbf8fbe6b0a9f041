package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/h2"
	"github.com/stoa-kv/stoa/internal/tracing"
)

// What every method has in common (count it, refuse it without a leader or the right) is put
// around the handlers in a service's description, once, and not into grpc's
// interceptors: those cost a closure and two more allocations for each call.

// register adds a service with its methods wrapped.
func (s *Server) register(desc grpc.ServiceDesc, impl any) {
	methods, ownMethods := make([]grpc.MethodDesc, len(desc.Methods)), make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		c := s.calls.of(desc.ServiceName, m.MethodName, "unary")
		methods[i], ownMethods[i] = m, m
		methods[i].Handler = s.wrapUnary(m.Handler, c)
		if later := laters[c.name]; later != nil {
			ownMethods[i].Handler = s.wrapLater(later, m.Handler, c)
		} else {
			ownMethods[i].Handler = methods[i].Handler
		}
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
	s.Server.RegisterService(&desc, impl)
	own := desc
	own.Methods = ownMethods
	s.Own.RegisterService(&own, impl)
}

type unaryHandler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

// laterHandler is the handler of a unary call that may leave its answer to others: then it calls
// later, and what it returns is ignored.
type laterHandler = func(srv any, ctx context.Context, dec func(any) error, later func() ready) (any, error)

// ready gives the answer to such a call; see h2.Later.
type ready = func(answer func() (any, error))

func (s *Server) wrapUnary(next unaryHandler, c *call) unaryHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		x := s.begin(ctx, c)
		if err := s.permit(x.ctx, c); err != nil {
			x.refused(err, next, srv, dec)
			return nil, err
		}
		x.in.dec = dec
		resp, err := next(srv, x.ctx, x.in.fn, interceptor)
		if err == nil {
			if err = s.checkFence(c); err != nil { // fenced meanwhile: it may come from that state
				resp = nil
			}
		}
		x.end(resp, err)
		return resp, err
	}
}

// wrapLater is wrapUnary for stoa's own transport. plain is the method's usual handler.
func (s *Server) wrapLater(next laterHandler, plain unaryHandler, c *call) unaryHandler {
	return func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		x := s.begin(ctx, c)
		if err := s.permit(x.ctx, c); err != nil {
			x.refused(err, plain, srv, dec)
			return nil, err
		}
		x.in.dec = dec
		resp, err := next(srv, x.ctx, x.in.fn, x.later)
		if !x.postponed {
			x.end(resp, err)
		}
		return resp, err
	}
}

// permit refuses a call by what every method has in common.
func (s *Server) permit(ctx context.Context, c *call) error {
	if err := s.guard.check(ctx); err != nil {
		return err
	}
	if err := s.checkLearner(c); err != nil {
		return err
	}
	if err := s.checkFence(c); err != nil {
		return err
	}
	return s.checkRight(ctx, c)
}

// unary is a call while it is carried out.
type unary struct {
	s      *Server
	c      *call
	ctx    context.Context
	in     *capture
	n      *counts
	span   *tracing.Span
	record audited
	began  time.Duration

	postponed bool // it ends when it is answered
}

func (s *Server) begin(ctx context.Context, c *call) unary {
	x := unary{s: s, c: c, in: captures.Get().(*capture)}
	x.in.memory = s.o.Memory
	x.in.memory.Begin(x.in.stripe)
	x.n = &c.counts[x.in.stripe]
	x.n.started.Add(1)
	x.began = s.clock()
	x.ctx, x.span = s.o.Tracer.Begin(ctx, c.name)
	x.ctx, x.record = s.audit.begin(x.ctx, c)
	return x
}

// refused ends a call that is not carried out.
func (x *unary) refused(err error, next unaryHandler, srv any, dec func(any) error) {
	x.span.End(err)
	x.c.ended(x.n, err, x.s.clock()-x.began)
	x.record.end(x.ctx, x.c, x.record.undone(next, srv, x.ctx, dec), nil, err)
	x.in.release()
}

// end ends a call that was carried out.
func (x *unary) end(resp any, err error) {
	x.span.End(err)
	took := x.s.clock() - x.began
	x.n.received.Add(1)
	if err == nil {
		x.n.sent.Add(1)
	}
	x.c.ended(x.n, err, took)
	x.record.end(x.ctx, x.c, x.in.req, resp, err)
	if limit := x.s.o.WarningUnary; took > limit && limit > 0 {
		x.s.warnOfSlow(x.ctx, x.c, took, x.in.req, resp)
	}
	x.in.release()
}

// later has the call ended by its answer.
func (x *unary) later() ready {
	r, ok := h2.Later(x.ctx, x.end)
	x.postponed = ok
	return r
}

func (s *Server) wrapStream(next grpc.StreamHandler, c *call) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		n := &c.counts[nextStripe()]
		n.started.Add(1)
		s.o.Memory.BeginStream()
		defer s.o.Memory.EndStream()
		began := s.clock()
		ctx, record := s.audit.begin(stream.Context(), c)
		var last *remembering
		if record.a != nil {
			last = &remembering{ServerStream: stream, ctx: ctx}
			stream = last
		}
		err := s.permit(stream.Context(), c)
		if err == nil {
			guarded, release := s.guard.watch(&counted{stream, n})
			err = next(srv, guarded)
			release()
		}
		c.ended(n, err, s.clock()-began)
		if last != nil {
			record.end(ctx, c, last.request(), nil, err)
		}
		return err
	}
}
