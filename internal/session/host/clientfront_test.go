package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/rpc"
	"github.com/stoa-kv/stoa/internal/session"
)

// front is a server of the rig as the services see it: real ones, of real clients.
type front struct {
	rpc.Node // what sessions don't need
	s        *rigServer
}

func (f front) core() *rigCore { return f.s.process.Load().core.Load() }

// ClusterID implements rpc.Info.
func (f front) ClusterID() uint64 { return f.s.identity().Cluster }

// MemberID implements rpc.Info.
func (f front) MemberID() uint64 { return f.s.id }

// RaftTerm implements rpc.Info.
func (f front) RaftTerm() uint64 { return f.core().Replica.Term() }

// Leader implements rpc.Info.
func (f front) Leader() uint64 { return f.core().Replica.Leader() }

// Revision implements rpc.Info.
func (f front) Revision() int64 { return f.core().Replica.Revision() }

// IsLearner implements rpc.Info.
func (f front) IsLearner() bool { return false }

// Fenced implements rpc.Info.
func (f front) Fenced() bool { return false }

// User implements rpc.Auth.
func (f front) User(context.Context) string { return "" }

// Permit implements rpc.Auth.
func (f front) Permit(context.Context, bool) error { return nil }

// OpenSession implements rpc.Sessions, as package node does.
func (f front) OpenSession(ctx context.Context, o *stoapb.OpenSession, watches []session.Item, sink session.Sink) (session.Handle, *stoapb.Opened, error) {
	p := f.s.process.Load()
	user, err := p.identify(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	l := Lease{ID: o.GetSession(), Renewed: time.Now()}
	if l.ID == 0 {
		l.ID, l.TTL = f.s.rig.nextID.Add(1), LeaseTTL(max(o.GetTtl(), 1))
		if err := p.grant(ctx, l, user); err != nil {
			return nil, nil, err
		}
	} else {
		if l.TTL, err = p.renewed(ctx, l.ID, user); errors.Is(err, fault.LeaseNotFound) {
			err = fault.SessionGone
		}
		if err != nil {
			return nil, nil, err
		}
	}
	s, opened := p.sessions.Open(l, User{Credential: user}, o, watches, sink)
	if p.down.Load() {
		s.Close()
		return nil, nil, fault.Stopped
	}
	opened.Revision = p.core.Load().Replica.Revision()
	return s, opened, nil
}

func (p *rigProcess) grant(ctx context.Context, l Lease, user uint64) error {
	done := make(chan error, 1)
	p.core.Load().proposeAs(user, command.SessionOpen, &pb.LeaseGrantRequest{ID: l.ID, TTL: l.TTL}, func(out replica.Outcome) { done <- out.Err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endpoint is the address of a server.
func (s *rigServer) endpoint() string { return fmt.Sprintf("10.0.0.%d:2379", s.id) }

// serve opens the server to clients; the function that it returns ends that.
func (s *rigServer) serve(w *wires) (end func()) {
	f := front{s: s}
	server := rpc.NewServer(f, s.rig.options)
	server.ServeSessions(f)
	d := w.listen(s.endpoint(), func() bool { return s.rig.shut.Load() || s.process.Load().down.Load() })
	served := make(chan error)
	go func() { served <- server.Server.Serve(d) }()
	return func() {
		server.Stop()
		<-served
		server.Close()
	}
}

// client connects over the network.
func (r *rig) client(t *testing.T, w *wires, cfg sdk.Config) *sdk.Client {
	cfg.DialOptions = r.over(w)
	for _, s := range r.servers {
		cfg.Endpoints = append(cfg.Endpoints, s.endpoint())
	}
	cfg.DialTimeout = time.Second
	c, err := sdk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// over is how a client connects over the network. What it asks before it opens a stream is answered at once: it holds a lock
// meanwhile, and in a bubble of synctest no time passes while others wait for that.
func (r *rig) over(w *wires) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(r.ask), tryOnce(),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.dial(ctx, to) }),
	}
}

// tryOnce has gRPC not open a stream again that no server has seen: it holds the stream's lock until there is a connection, and in a bubble of synctest no time
// passes while a message that is to be sent over it waits for that.
func tryOnce() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		st, err := open(ctx, desc, cc, method, opts...)
		if err == nil {
			_ = st.Context() // there are no more attempts once it is known
		}
		return st, err
	})
}

// ask answers who leads, and logs users in.
func (r *rig) ask(ctx context.Context, method string, req, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if login, is := req.(*pb.AuthenticateRequest); is {
		return r.authenticate(login, reply.(*pb.AuthenticateResponse))
	}
	if method != stoapb.Partitions_List_FullMethodName {
		return call(ctx, method, req, reply, to, opts...)
	}
	for _, s := range r.servers {
		if strings.HasSuffix(to.Target(), s.endpoint()) && !s.process.Load().down.Load() {
			f := front{s: s}
			l := reply.(*stoapb.ListPartitionsResponse)
			l.MemberId, l.Partitions = s.id, []*stoapb.Partition{{Leader: f.Leader(), Term: f.RaftTerm()}}
			return nil
		}
	}
	return status.Error(codes.Unavailable, "down")
}
