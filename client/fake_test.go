package client_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

// fake is a cluster in this process, as far as a session can tell: several members
// over one state that knows numbers, duplicates, leases and watches. Its streams
// break when a test wants them to.
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
	// stuck makes members swallow everything and say nothing.
	stuck bool
	// asked is what reads were asked for.
	asked []*stoapb.Request
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

// fakeSession is what the cluster remembers of a session.
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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

// expire takes a session's lease away.
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
	s := f.sessions[o.Session]
	switch {
	case o.Session == 0:
		f.lastID++
		s = &fakeSession{id: f.lastID, results: map[uint64]*stoapb.Reply{}, client: o.Client}
		f.sessions[s.id] = s
	case s == nil:
		return nil, nil, status.Error(codes.NotFound, "etcdserver: requested lease not found")
	}
	s.opens = append(s.opens, proto.Clone(o).(*stoapb.OpenSession))
	if s.stream != nil {
		s.stream.die(status.Error(codes.Aborted, "opened again"))
	}
	st := &fakeStream{ready: make(chan struct{}, 1), watches: map[uint64]*pb.WatchCreateRequest{}}
	s.stream = st
	f.resume(st, o.Watches)
	opened := &stoapb.Opened{Session: s.id, Ttl: max(o.Ttl, 1), ClusterId: 77, MemberId: m.id, RaftTerm: 3, Revision: f.revision, WindowRequests: f.window}
	if o.PartitionMap {
		opened.PartitionMap = f.atlas
	}
	return s, st, g.Send(&stoapb.ServerBatch{Opened: opened})
}

func (f *fake) receiveAll(g stoapb.Sessions_OpenServer, s *fakeSession, st *fakeStream, batch *stoapb.ClientBatch) error {
	next := max(batch.Open.Next, 1)
	for {
		for _, r := range batch.Requests {
			if f.before != nil {
				f.before(r)
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
		st.out = nil
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

// handle does one request. It needs the lock, as all below.
func (f *fake) handle(s *fakeSession, st *fakeStream, r *stoapb.Request) {
	switch r.Kind {
	case stoapb.Kind_WATCH:
		f.watch(st, r)
		return
	case stoapb.Kind_CANCEL:
		c := new(pb.WatchCancelRequest)
		_ = proto.Unmarshal(r.Body, c)
		delete(st.watches, uint64(c.WatchId))
		st.push(f.reply(r.Seq, &pb.WatchResponse{Canceled: true}))
		return
	case stoapb.Kind_PROGRESS, stoapb.Kind_SYNC:
		f.asked = append(f.asked, r)
		st.push(&stoapb.Reply{Seq: r.Seq, Revision: f.revision})
		return
	case stoapb.Kind_CLOSE:
		f.revoke(s)
		st.push(&stoapb.Reply{Seq: r.Seq, Revision: f.revision, Message: "closed"})
		return
	case stoapb.Kind_RANGE:
		f.asked = append(f.asked, r)
		q := new(pb.RangeRequest)
		_ = proto.Unmarshal(r.Body, q)
		st.push(f.reply(r.Seq, f.get(q)))
		return
	}
	if r.Seq <= s.last {
		if old := s.results[r.Seq]; old != nil {
			st.push(old)
			return
		}
		st.push(&stoapb.Reply{Seq: r.Seq, Code: uint32(codes.FailedPrecondition), Message: "forgotten"})
		return
	}
	answer := f.write(s, st, r)
	s.last, s.results[r.Seq] = r.Seq, answer
	st.push(answer)
}

func (f *fake) reply(seq uint64, m proto.Message) *stoapb.Reply {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &stoapb.Reply{Seq: seq, Body: body, Revision: f.revision}
}

func (f *fake) write(s *fakeSession, st *fakeStream, r *stoapb.Request) *stoapb.Reply {
	f.revision++
	var answer proto.Message
	before := len(f.history)
	key := ""
	switch r.Kind {
	case stoapb.Kind_PUT:
		q := new(pb.PutRequest)
		_ = proto.Unmarshal(r.Body, q)
		if key = string(q.Key); key == "refuse" {
			f.revision--
			return &stoapb.Reply{Seq: r.Seq, Code: uint32(codes.InvalidArgument), Message: "etcdserver: key is not provided"}
		}
		answer = f.put(q)
	case stoapb.Kind_DELETE_RANGE:
		q := new(pb.DeleteRangeRequest)
		_ = proto.Unmarshal(r.Body, q)
		key = string(q.Key)
		answer = f.delete(q)
	case stoapb.Kind_TXN:
		q := new(pb.TxnRequest)
		_ = proto.Unmarshal(r.Body, q)
		answer = f.txn(q)
	}
	if len(f.history) == before {
		f.revision--
	}
	f.writes = append(f.writes, write{s.id, r.Seq, key})
	f.publish(f.history[before:])
	return f.reply(r.Seq, answer)
}

func (f *fake) put(q *pb.PutRequest) *pb.PutResponse {
	old := f.keys[string(q.Key)]
	kv := &mvccpb.KeyValue{Key: q.Key, Value: q.Value, Lease: q.Lease, ModRevision: f.revision, CreateRevision: f.revision, Version: 1}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	f.keys[string(q.Key)] = kv
	f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	answer := &pb.PutResponse{}
	if q.PrevKv {
		answer.PrevKv = old
	}
	return answer
}

func within(key, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(key, from)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(key, from) >= 0
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}

func (f *fake) find(from, end []byte) (kvs []*mvccpb.KeyValue) {
	for _, kv := range f.keys {
		if within(kv.Key, from, end) {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return kvs
}

func (f *fake) get(q *pb.RangeRequest) *pb.RangeResponse {
	kvs := f.find(q.Key, q.RangeEnd)
	answer := &pb.RangeResponse{Kvs: kvs, Count: int64(len(kvs))}
	if q.Limit > 0 && int64(len(kvs)) > q.Limit {
		answer.Kvs, answer.More = kvs[:q.Limit], true
	}
	return answer
}

func (f *fake) delete(q *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := f.find(q.Key, q.RangeEnd)
	for _, kv := range kvs {
		delete(f.keys, string(kv.Key))
		f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: f.revision}})
	}
	answer := &pb.DeleteRangeResponse{Deleted: int64(len(kvs))}
	if q.PrevKv {
		answer.PrevKvs = kvs
	}
	return answer
}

func (f *fake) txn(q *pb.TxnRequest) *pb.TxnResponse {
	answer := &pb.TxnResponse{Succeeded: true}
	for _, c := range q.Compare {
		version := int64(0)
		if kv := f.keys[string(c.Key)]; kv != nil {
			version = kv.Version
		}
		answer.Succeeded = answer.Succeeded && version == c.GetVersion()
	}
	ops := q.Success
	if !answer.Succeeded {
		ops = q.Failure
	}
	for _, op := range ops {
		out := &pb.ResponseOp{}
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: f.put(o.RequestPut)}
		case *pb.RequestOp_RequestRange:
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: f.get(o.RequestRange)}
		case *pb.RequestOp_RequestDeleteRange:
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: f.delete(o.RequestDeleteRange)}
		}
		answer.Responses = append(answer.Responses, out)
	}
	return answer
}

func (f *fake) revoke(s *fakeSession) {
	f.revision++
	before := len(f.history)
	for key, kv := range f.keys {
		if kv.Lease == s.id {
			delete(f.keys, key)
			f.history = append(f.history, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: f.revision}})
		}
	}
	delete(f.sessions, s.id)
	f.publish(f.history[before:])
}

func (f *fake) watch(st *fakeStream, r *stoapb.Request) {
	c := new(pb.WatchCreateRequest)
	_ = proto.Unmarshal(r.Body, c)
	if string(c.Key) == "compacted" {
		st.push(f.reply(r.Seq, &pb.WatchResponse{Created: true, Canceled: true, CompactRevision: 5}))
		return
	}
	st.push(f.reply(r.Seq, &pb.WatchResponse{Created: true}))
	if c.StartRevision == 0 {
		st.watches[r.Seq] = c
		return
	}
	f.resume(st, []*stoapb.Request{r})
}

// resume opens watches in the past, whose events come in one order.
func (f *fake) resume(st *fakeStream, watches []*stoapb.Request) {
	for _, r := range watches {
		c := new(pb.WatchCreateRequest)
		_ = proto.Unmarshal(r.Body, c)
		st.watches[r.Seq] = c
	}
	for i, e := range f.history {
		for _, r := range watches {
			c := st.watches[r.Seq]
			if e.Kv.ModRevision >= c.StartRevision && within(e.Kv.Key, c.Key, c.RangeEnd) {
				f.event(st, r.Seq, f.history[i:i+1])
			}
		}
	}
}

// publish gives the events of one revision to all watches, before any reply that
// reflects them.
func (f *fake) publish(events []*mvccpb.Event) {
	for _, s := range f.sessions {
		if s.stream == nil || s.stream.dead != nil {
			continue
		}
		for _, seq := range sorted(s.stream.watches) {
			c := s.stream.watches[seq]
			var some []*mvccpb.Event
			for _, e := range events {
				if within(e.Kv.Key, c.Key, c.RangeEnd) {
					some = append(some, e)
				}
			}
			if len(some) > 0 {
				f.event(s.stream, seq, some)
			}
		}
	}
}

func sorted[V any](m map[uint64]V) (keys []uint64) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (f *fake) event(st *fakeStream, seq uint64, events []*mvccpb.Event) {
	r := f.reply(seq, &pb.WatchResponse{Events: events})
	r.Event = true
	st.push(r)
}

var statusAborted = status.Error(codes.Aborted, "opened elsewhere")
