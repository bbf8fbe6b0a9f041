package rpc

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/session"
)

// Sessions carries sessions.
type Sessions interface {
	// OpenSession opens a session, or takes one up again with the watches that it
	// brings. It says nothing to the sink before the handle's Start.
	OpenSession(ctx context.Context, o *stoapb.OpenSession, watches []session.Item, sink session.Sink) (session.Handle, *stoapb.Opened, error)
}

// ServeSessions adds stoa's own service. It must be called before Serve.
func (s *Server) ServeSessions(n Sessions) {
	impl := &sessionServer{info: s.node, sessions: n, maxOps: s.o.MaxTxnOps, maxBytes: s.o.MaxRequestBytes, drain: s.drain, audit: s.audit}
	desc := stoapb.Sessions_ServiceDesc
	desc.Streams = []grpc.StreamDesc{{
		StreamName: desc.Streams[0].StreamName, ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error { return impl.open(stream) },
	}}
	s.register(desc, impl)
}

type sessionServer struct {
	stoapb.UnimplementedSessionsServer
	info     Info
	sessions Sessions
	maxOps   int
	maxBytes int
	drain    <-chan struct{} // closed when the server stops taking requests
	audit    *auditor
}

// open serves one session. It receives on a goroutine of its own, which ends
// when this method does.
func (s *sessionServer) open(stream grpc.ServerStream) error {
	ctx := stream.Context()
	var received sessionwire.Received
	if err := stream.RecvMsg(&received); err != nil {
		return err
	}
	r := &sessionReceiver{server: s, stream: stream}
	if err := r.batch.Decode(received.Bytes); err != nil || r.batch.Open == nil {
		return badSession("the first message must open a session")
	}
	o := r.batch.Open
	if len(o.GetClient()) > maxClientID {
		return badSession("the client's id is longer than 256 bytes")
	}
	if o.GetClient() == "" {
		o.Client, _ = Caller(ctx)
	}
	watches, err := s.watches(o)
	if err != nil {
		return err
	}
	sink := &sessionSink{stream: stream, audit: s.audit.session(ctx)}
	h, opened, err := s.sessions.OpenSession(ctx, o, watches, sink)
	if err != nil {
		return toStatus(err)
	}
	defer h.Close()
	opened.ClusterId, opened.MemberId, opened.RaftTerm = s.info.ClusterID(), s.info.MemberID(), s.info.RaftTerm()
	sink.audit.opened(opened.GetSession())
	if err := stream.SendMsg(&sessionwire.ServerBatch{Opened: opened}); err != nil {
		return err
	}
	r.handle, r.next = h, max(o.GetNext(), 1)
	h.Start()
	return s.carry(ctx, r)
}

func (s *sessionServer) carry(ctx context.Context, r *sessionReceiver) error {
	failed := make(chan error, 1)
	go func() { failed <- r.run(ctx) }()
	drain := s.drain
	for {
		select {
		case <-r.handle.Done():
			return toStatus(r.handle.Err())
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				failed = nil // the client has sent everything, and waits for replies
				r.handle.Drain()
				continue
			}
			return toStatus(err)
		case <-drain:
			drain = nil
			r.handle.Drain()
		case <-ctx.Done():
			return toStatus(context.Cause(ctx))
		}
	}
}

func badSession(why string) error { return status.Error(codes.InvalidArgument, "stoa: "+why) }

// watches are those that a session brings with it.
func (s *sessionServer) watches(o *stoapb.OpenSession) ([]session.Item, error) {
	items := session.NewItems(len(o.GetWatches()))
	for i, w := range o.GetWatches() {
		items[i].Seq, items[i].Level = w.GetSeq(), w.GetLevel()
		items[i].Kind, items[i].Body = stoapb.Kind_WATCH, w.GetBody()
		if err := s.check(&items[i].Request); err != nil || w.GetKind() != stoapb.Kind_WATCH || w.GetSeq() == 0 || w.GetSeq() >= max(o.GetNext(), 1) {
			return nil, badSession("a watch that the session brings with it is none")
		}
	}
	return items, nil
}

// sessionReceiver receives the client's messages.
type sessionReceiver struct {
	server *sessionServer
	stream grpc.ServerStream
	handle session.Handle
	batch  sessionwire.ClientBatch // the present message
	next   uint64
}

func (r *sessionReceiver) run(ctx context.Context) error {
	for first := true; ; first = false {
		if !first {
			var received sessionwire.Received
			if err := r.stream.RecvMsg(&received); err != nil {
				return err
			}
			if err := r.batch.Decode(received.Bytes); err != nil {
				return badSession(err.Error())
			}
			if r.batch.Open != nil {
				return badSession("the session is open")
			}
		} else if len(r.batch.Requests) == 0 {
			continue
		}
		items, err := r.items()
		if err != nil {
			return err
		}
		if err := r.handle.Take(ctx, items, r.batch.Answered); err != nil {
			return err
		}
	}
}

// items checks the requests of the message. One with a wrong form has its answer
// then, in its place.
func (r *sessionReceiver) items() ([]session.Item, error) {
	items := session.NewItems(len(r.batch.Requests))
	for i := range r.batch.Requests {
		in, it := &r.batch.Requests[i], &items[i]
		if in.Seq != r.next {
			return nil, badSession("requests are not numbered one by one")
		}
		r.next++
		it.Seq, it.Token, it.Bytes = in.Seq, in.Revision, requestOverhead+len(in.Body)
		it.Kind, it.Level, it.Body = in.Kind, in.Level, in.Body
		if it.Level < stoapb.Level_STRICT || it.Level > stoapb.Level_FAST {
			it.Level = stoapb.Level_STRICT
		}
		if it.Err = r.server.check(&it.Request); it.Err != nil {
			it.Done = true
		}
	}
	return items, nil
}

// requestOverhead is what a request takes up beside its body, roughly.
const requestOverhead = 256

// check decodes a request as far as it is needed, and refuses what etcd refuses for
// its form.
func (s *sessionServer) check(r *session.Request) error {
	if len(r.Body) > s.maxBytes+frameOverhead {
		return status.Error(codes.InvalidArgument, "etcdserver: request is too large")
	}
	switch r.Kind {
	case stoapb.Kind_PUT:
		return checkSessionPut(r)
	case stoapb.Kind_RANGE:
		return checkSessionRange(r)
	case stoapb.Kind_DELETE_RANGE:
		m := new(pb.DeleteRangeRequest)
		return decodeThen(r, m, func() error { return checkDelete(m) })
	case stoapb.Kind_TXN:
		m := new(pb.TxnRequest)
		return decodeThen(r, m, func() error {
			if err := checkTxn(m, s.maxOps); err != nil {
				return err
			}
			return checkOverlaps(m)
		})
	case stoapb.Kind_WATCH:
		m := new(pb.WatchCreateRequest)
		return decodeThen(r, m, func() error { return nil })
	case stoapb.Kind_CANCEL:
		m := new(pb.WatchCancelRequest)
		return decodeThen(r, m, func() error { return nil })
	case stoapb.Kind_PROGRESS, stoapb.Kind_SYNC, stoapb.Kind_CLOSE:
		return nil
	}
	return status.Error(codes.Unimplemented, "stoa: this server doesn't know such a request")
}
