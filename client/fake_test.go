package client_test

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

// fake is a cluster in this process, as seen by a session: several members over
// one state that knows numbers, duplicates, leases and watches. Tests break its
// streams.
type fake struct {
	t       testing.TB
	members []*fakeMember

	mu       sync.Mutex
	leader   uint64
	revision int64
	keys     map[string]*mvccpb.KeyValue
	history  []*mvccpb.Event
	sessions map[int64]*fakeSession
	writes   []write // in the order in which they took effect
	lastID   int64
	atlas    *stoapb.PartitionMap
	window   uint32
	// chance that a stream breaks at one of the places where it may.
	breaks float64
	random *rand.Rand
	// stuck makes members accept requests and never answer.
	stuck bool
	// full makes members refuse new sessions.
	full bool
	// nobody makes members refuse clients without a user.
	nobody bool
	// asked are the requested reads.
	asked []*stoapb.Request
	// mute drops all replies.
	mute bool
	// before, if set, is called for each request without the lock.
	before func(*stoapb.Request)
}

type write struct {
	session int64
	seq     uint64
	key     string
}

type fakeMember struct {
	stoapb.UnimplementedSessionsServer
	stoapb.UnimplementedPartitionsServer
	f      *fake
	id     uint64
	addr   string
	server *grpc.Server
	opens  int
}

// fakeSession is the cluster's state of a session.
type fakeSession struct {
	id      int64
	last    uint64
	told    uint64 // the highest number whose reply was sent
	results map[uint64]*stoapb.Reply
	client  string
	opens   []*stoapb.OpenSession
	stream  *fakeStream
}

// fakeStream is one stream's sending side.
type fakeStream struct {
	out     []*stoapb.Reply
	ready   chan struct{}
	watches map[uint64]*pb.WatchCreateRequest
	before  uint64 // requests up to here may have come over another stream
	dead    error
}

func newFake(t testing.TB, members int) *fake {
	f := &fake{
		t: t, revision: 1, leader: 1, keys: map[string]*mvccpb.KeyValue{}, sessions: map[int64]*fakeSession{},
		random: rand.New(rand.NewPCG(1, 2)), lastID: 1000,
	}
	for i := range members {
		f.members = append(f.members, &fakeMember{f: f, id: uint64(i + 1), addr: "127.0.0.1:0"})
		f.members[i].start()
	}
	t.Cleanup(func() {
		for _, m := range f.members {
			m.server.Stop()
		}
	})
	return f
}

func (m *fakeMember) start() {
	var l net.Listener
	require.Eventually(m.f.t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", m.addr)
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
	m.addr = l.Addr().String()
	m.server = grpc.NewServer(grpc.MaxRecvMsgSize(2 << 20))
	stoapb.RegisterSessionsServer(m.server, m)
	stoapb.RegisterPartitionsServer(m.server, m)
	go func() { _ = m.server.Serve(l) }()
}

func (f *fake) endpoints() (all []string) {
	for _, m := range f.members {
		all = append(all, m.addr)
	}
	return all
}

func (f *fake) client(change ...func(*client.Config)) *client.Client {
	cfg := client.Config{Endpoints: f.endpoints(), DialTimeout: 2 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	c, err := client.New(cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fake) session(opts ...client.SessionOption) *client.Session {
	s, err := f.client().Session(testContext(f.t), opts...)
	require.NoError(f.t, err)
	return s
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// set changes the fake under its lock.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// cut breaks a session's stream.
func (f *fake) cut(id int64) {
	f.set(func() { f.sessions[id].stream.die(status.Error(codes.Unavailable, "cut")) })
}

// expire expires a session's lease.
func (f *fake) expire(id int64) {
	f.set(func() {
		s := f.sessions[id]
		f.revoke(s)
		if s.stream != nil {
			s.stream.die(status.Error(codes.NotFound, "etcdserver: requested lease not found"))
		}
	})
}

func (m *fakeMember) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	return &stoapb.ListPartitionsResponse{MemberId: m.id, Partitions: []*stoapb.Partition{{Id: 0, Leader: m.f.leader, Term: 2}}}, nil
}

// Open carries a session until its stream is broken.
func (m *fakeMember) Open(g stoapb.Sessions_OpenServer) error {
	f := m.f
	first, err := g.Recv()
	if err != nil {
		return err
	}
	s, st, err := m.open(g, first)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- f.sendAll(g, s, st) }()
	go func() { ended <- f.receiveAll(g, s, st, first) }()
	err = <-ended
	f.mu.Lock()
	defer f.mu.Unlock()
	st.die(err)
	return err
}

func (m *fakeMember) open(g stoapb.Sessions_OpenServer, first *stoapb.ClientBatch) (*fakeSession, *fakeStream, error) {
	f, o := m.f, first.Open
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		f.mu.Unlock()
		<-g.Context().Done()
		f.mu.Lock()
		return nil, nil, g.Context().Err()
	}
	m.opens++
	if f.nobody {
		return nil, nil, rpctypes.ErrGRPCUserEmpty
	}
	if f.full {
		return nil, nil, status.Error(codes.ResourceExhausted, "stoa: too many sessions: 2 are open, the most that there may be")
	}
	s := f.sessions[o.Session]
	switch {
	case o.Session == 0:
		f.lastID++
		s = &fakeSession{id: f.lastID, results: map[uint64]*stoapb.Reply{}, client: strings.Join(metadata.ValueFromIncomingContext(g.Context(), "stoa-client-id"), ", ")}
		f.sessions[s.id] = s
	case s == nil:
		return nil, nil, status.Error(codes.NotFound, "etcdserver: requested lease not found")
	}
	s.opens = append(s.opens, proto.Clone(o).(*stoapb.OpenSession))
	if s.stream != nil {
		s.stream.die(status.Error(codes.Aborted, "opened again"))
	}
	st := &fakeStream{ready: make(chan struct{}, 1), watches: map[uint64]*pb.WatchCreateRequest{}, before: o.Sent}
	s.stream = st
	f.resume(st, o.Watches)
	opened := &stoapb.Opened{Session: s.id, Ttl: max(o.Ttl, 1), ClusterId: 77, MemberId: m.id, RaftTerm: 3, Revision: f.revision, WindowRequests: f.window}
	if o.PartitionMap {
		opened.PartitionMap = f.atlas
	}
	return s, st, g.Send(&stoapb.ServerBatch{Opened: opened})
}

// hook is what is done before a request, outside the lock.
func (f *fake) hook() func(*stoapb.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before
}

func (f *fake) receiveAll(g stoapb.Sessions_OpenServer, s *fakeSession, st *fakeStream, batch *stoapb.ClientBatch) error {
	next := max(batch.Open.Next, 1)
	for {
		for _, r := range batch.Requests {
			if before := f.hook(); before != nil {
				before(r)
			}
			f.mu.Lock()
			if r.Seq != next {
				f.mu.Unlock()
				return status.Errorf(codes.InvalidArgument, "request %d where %d was to come", r.Seq, next)
			}
			next++
			if st.dead != nil || f.random.Float64() < f.breaks {
				f.mu.Unlock()
				return status.Error(codes.Unavailable, "broken before a request")
			}
			f.handle(s, st, r)
			broken := f.random.Float64() < f.breaks
			f.mu.Unlock()
			if broken {
				return status.Error(codes.Unavailable, "broken behind a request")
			}
			if r.Kind == stoapb.Kind_CLOSE {
				<-g.Context().Done()
				return nil
			}
		}
		f.mu.Lock()
		if batch.Answered > s.told {
			f.t.Errorf("the client has seen the reply to %d, and none behind %d was sent", batch.Answered, s.told)
		}
		for seq := range s.results {
			if seq <= batch.Answered {
				delete(s.results, seq)
			}
		}
		stuck := f.stuck
		if len(batch.Requests) == 0 && !stuck {
			st.push(nil)
		}
		f.mu.Unlock()
		var err error
		if batch, err = g.Recv(); err != nil {
			return err
		}
	}
}

// push adds a reply, or none: then an empty batch is sent.
func (st *fakeStream) push(r *stoapb.Reply) {
	st.out = append(st.out, r)
	select {
	case st.ready <- struct{}{}:
	default:
	}
}

func (st *fakeStream) die(err error) {
	if st.dead == nil {
		st.dead = err
		if st.dead == nil {
			st.dead = status.Error(codes.Unavailable, "over")
		}
	}
	select {
	case st.ready <- struct{}{}:
	default:
	}
}

func (f *fake) sendAll(g stoapb.Sessions_OpenServer, s *fakeSession, st *fakeStream) error {
	for {
		select {
		case <-st.ready:
		case <-g.Context().Done():
			return g.Context().Err()
		}
		f.mu.Lock()
		out, dead, stuck := st.out, st.dead, f.stuck
		if st.out = nil; f.mute {
			out = nil
		}
		if n := len(out); n > 0 && f.random.Float64() < f.breaks {
			out, dead = out[:f.random.IntN(n+1)], status.Error(codes.Unavailable, "broken amid replies")
		}
		f.mu.Unlock()
		if stuck {
			continue
		}
		if len(out) > 0 {
			b := &stoapb.ServerBatch{}
			for _, r := range out {
				if r != nil {
					b.Replies = append(b.Replies, r)
				}
			}
			f.mu.Lock()
			for _, r := range b.Replies {
				if !r.Event {
					s.told = max(s.told, r.Seq)
				}
			}
			f.mu.Unlock()
			if err := g.Send(b); err != nil {
				return err
			}
			if n := len(b.Replies); n > 0 && b.Replies[n-1].Message == "closed" {
				return nil
			}
		}
		if dead != nil {
			return dead
		}
	}
}

var statusAborted = status.Error(codes.Aborted, "opened by another client")
