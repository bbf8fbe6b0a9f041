package sidecar

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/sidecar/front"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
)

// services are those whose methods are known. Others are forwarded, too, as streams.
func services() []grpc.ServiceDesc {
	return []grpc.ServiceDesc{
		pb.KV_ServiceDesc, pb.Watch_ServiceDesc, pb.Lease_ServiceDesc, pb.Cluster_ServiceDesc, pb.Maintenance_ServiceDesc,
		pb.Auth_ServiceDesc, lockpb.Lock_ServiceDesc, lockpb.Election_ServiceDesc, healthpb.Health_ServiceDesc,
		stoapb.Sessions_ServiceDesc, stoapb.Partitions_ServiceDesc, stoapb.Quotas_ServiceDesc, stoapb.Extensions_ServiceDesc,
	}
}

// register has the methods of a service forwarded.
func (s *Server) register(d grpc.ServiceDesc) {
	var methods []grpc.MethodDesc
	for _, m := range d.Methods {
		methods = append(methods, grpc.MethodDesc{MethodName: m.MethodName, Handler: s.unary("/" + d.ServiceName + "/" + m.MethodName)})
	}
	var streams []grpc.StreamDesc
	for _, st := range d.Streams {
		method := "/" + d.ServiceName + "/" + st.StreamName
		st.Handler = s.stream(method, st.ClientStreams || follows[method])
		streams = append(streams, st)
	}
	d.Methods, d.Streams = methods, streams
	s.grpc.RegisterService(&d, nil)
	s.own.RegisterService(&d, nil)
}

// follows are streams with one request that tell what changes for as long as there is somebody to tell.
var follows = map[string]bool{
	lockpb.Election_Observe_FullMethodName: true, healthpb.Health_Watch_FullMethodName: true, stoapb.Extensions_Logs_FullMethodName: true,
}

type unaryHandler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

func (s *Server) unary(method string) unaryHandler {
	counted := s.metrics.method(method)
	carry := s.forward.unary
	if kind, ok := kinds[method]; ok {
		carry = func(ctx context.Context, method string, in *frame) (*frame, error) {
			return s.kv(ctx, method, kind, in)
		}
	}
	if s.namespace != nil {
		carry = s.namespace.unary(method, carry)
	}
	seen := s.caches != nil && tells(method)
	return func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(frame)
		if err := dec(in); err != nil {
			return nil, err
		}
		done := s.begin(counted)
		allowance, bytes, err := front.Admit(ctx, in.size)
		if err != nil {
			done(err)
			return nil, err
		}
		out, err := carry(ctx, method, in)
		allowance.Release(bytes)
		done(err)
		if err != nil {
			return nil, err
		}
		if seen {
			front.Of(ctx).See(revisionOf(method, out.data))
		}
		return out, nil
	}
}

// kv carries out a call of the KV service from memory or over a session, if it can.
func (s *Server) kv(ctx context.Context, method string, kind stoapb.Kind, in *frame) (*frame, error) {
	if md, _ := metadata.FromIncomingContext(ctx); !ordinary(md) {
		return s.forward.unary(ctx, method, in)
	}
	if s.caches != nil && kind == stoapb.Kind_RANGE {
		if answer, ok := s.caches.read(ctx, in.data); ok {
			return &frame{answer}, nil
		}
	}
	if s.lanes != nil {
		if r, ok := share(kind, in.data); ok {
			answer, err := s.lanes.do(ctx, &r)
			if !errors.Is(err, errNotTaken) {
				return &frame{answer}, err
			}
			s.metrics.unshared.Inc()
		}
	}
	return s.forward.unary(ctx, method, in)
}

// stream handles a method's streams. Those that are endless have no end of their own: a shutdown doesn't wait for them.
func (s *Server) stream(method string, endless bool) grpc.StreamHandler {
	counted := s.metrics.method(method)
	carry := func(st grpc.ServerStream) error { return s.finite(method, counted, st) }
	if endless {
		carry = func(st grpc.ServerStream) error { return s.endless(method, counted, st) }
	}
	if s.namespace != nil {
		translated, inner := s.namespace.stream(method), carry
		carry = func(st grpc.ServerStream) error { return translated(st, inner) }
	}
	if s.caches != nil && tells(method) {
		unseen := carry
		carry = func(st grpc.ServerStream) error { return unseen(&seeing{st, method, front.Of(st.Context())}) }
	}
	return func(_ any, st grpc.ServerStream) error { return carry(st) }
}

func (s *Server) finite(method string, c *counted, st grpc.ServerStream) error {
	done := s.begin(c)
	err := s.forward.stream(st.Context(), method, st)
	done(err)
	return err
}

// other forwards methods that this release doesn't know.
func (s *Server) other(_ any, st grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(st)
	if s.namespace != nil {
		return errUnknownInNamespace
	}
	return s.endless(method, s.metrics.others, st)
}

// errStopping has the code upon which etcd's clients open a stream again.
var errStopping = status.Error(codes.Unavailable, "stoa sidecar: "+front.ErrDraining.Error())

func (s *Server) endless(method string, c *counted, st grpc.ServerStream) error {
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.Streaming(), func() { cancel(errStopping) })()
	carry := s.forward.stream
	switch method {
	case pb.Watch_Watch_FullMethodName:
		carry = s.watch
	case pb.Lease_LeaseKeepAlive_FullMethodName:
		carry = s.keepAlive
	}
	err := carry(ctx, method, st)
	if err != nil && context.Cause(ctx) == errStopping {
		err = errStopping
	}
	c.ended(err)
	return err
}

// watch has a stream of watches follow those of others, if it can.
func (s *Server) watch(ctx context.Context, method string, st grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(ctx)
	leader, ok := shareable(md)
	if ok && len(s.watches) > 0 {
		ws := s.watches[0]
		if leader {
			ws = s.watches[1]
		}
		// If the cluster can't tell, a member may know what to say.
		if a, err := ws.question.ask(ctx); err == nil && a.coalesce {
			return ws.serve(ctx, st)
		}
	}
	return s.forward.stream(ctx, method, st)
}

// keepAlive has a stream of keep-alives share renewals with others, if it can.
func (s *Server) keepAlive(ctx context.Context, method string, st grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(ctx)
	leader, ok := shareable(md)
	switch {
	case !ok || len(s.renewing) == 0:
		return s.forward.stream(ctx, method, st)
	case leader:
		return s.renewing[1].serve(ctx, st)
	default:
		return s.renewing[0].serve(ctx, st)
	}
}
