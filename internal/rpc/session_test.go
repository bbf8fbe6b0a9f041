package rpc_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/rpc"
)

// A minimal client of sessions, with the generated code.

type testSession struct {
	t      testing.TB
	stream stoapb.Sessions_OpenClient
	cancel context.CancelFunc
	opened *stoapb.Opened
	next   uint64
	queue  []*stoapb.Reply
	placed *stoapb.PartitionMap // that was told last
}

func startServer(t testing.TB, partitions int, o rpc.Options) (*node.Node, *grpc.ClientConn, *rpc.Server) {
	n, err := node.Start(node.Config{
		ID: 1, ClusterID: 7, Members: []*pb.Member{{ID: 1}}, DataDir: t.TempDir(), Partitions: partitions,
		Called: rpc.Called, Fatal: func(err error) { panic(err) },
	})
	require.NoError(t, err)
	<-n.Ready()
	s := rpc.NewServer(n, o)
	s.ServeSessions(n)
	lis := bufconn.Listen(1 << 20)
	go func() { _ = rpc.Front(s).Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, n.Stop(ctx))
	})
	return n, conn, s
}

func openSession(t testing.TB, conn *grpc.ClientConn, o *stoapb.OpenSession) *testSession {
	s, err := tryOpen(t, conn, o)
	require.NoError(t, err)
	return s
}

func tryOpen(t testing.TB, conn *grpc.ClientConn, o *stoapb.OpenSession) (*testSession, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := stoapb.NewSessionsClient(conn).Open(ctx)
	require.NoError(t, err)
	s := &testSession{t: t, stream: stream, cancel: cancel, next: max(o.Next, 1)}
	require.NoError(t, stream.Send(&stoapb.ClientBatch{Open: o}))
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	s.opened = m.Opened
	s.queue = m.Replies
	return s, nil
}

func (s *testSession) request(kind stoapb.Kind, level stoapb.Level, m proto.Message) *stoapb.Request {
	r := &stoapb.Request{Seq: s.next, Kind: kind, Level: level}
	s.next++
	if m != nil {
		var err error
		r.Body, err = proto.Marshal(m)
		require.NoError(s.t, err)
	}
	return r
}

func (s *testSession) send(requests ...*stoapb.Request) {
	require.NoError(s.t, s.stream.Send(&stoapb.ClientBatch{Requests: requests}))
}

func (s *testSession) recv() (*stoapb.Reply, error) {
	for len(s.queue) == 0 {
		m, err := s.stream.Recv()
		if err != nil {
			return nil, err
		}
		s.queue = m.Replies
		if m.PartitionMap != nil {
			s.placed = m.PartitionMap
		}
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	return r, nil
}

func (s *testSession) reply(seq uint64) *stoapb.Reply {
	r, err := s.recv()
	require.NoError(s.t, err)
	require.Equal(s.t, seq, r.Seq, "%v", r)
	require.False(s.t, r.Event, "%v", r)
	return r
}

func (s *testSession) event(seq uint64) *pb.WatchResponse {
	r, err := s.recv()
	require.NoError(s.t, err)
	require.True(s.t, r.Event, "%v", r)
	require.Equal(s.t, seq, r.Seq)
	return body(s.t, r, new(pb.WatchResponse))
}

func body[M proto.Message](t testing.TB, r *stoapb.Reply, m M) M {
	require.Zero(t, r.Code, r.Message)
	require.NoError(t, proto.Unmarshal(r.Body, m))
	return m
}

func (s *testSession) put(key, value string) *stoapb.Request {
	return s.request(stoapb.Kind_PUT, 0, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
}

func (s *testSession) get(key string, level stoapb.Level) *stoapb.Request {
	return s.request(stoapb.Kind_RANGE, level, &pb.RangeRequest{Key: []byte(key)})
}

func (s *testSession) value(seq uint64) string {
	resp := body(s.t, s.reply(seq), new(pb.RangeResponse))
	if len(resp.Kvs) == 0 {
		return ""
	}
	require.EqualValues(s.t, 1, resp.Count)
	return string(resp.Kvs[0].Value)
}

func eachPartitions(t *testing.T, test func(t *testing.T, n *node.Node, conn *grpc.ClientConn, s *rpc.Server)) {
	for _, p := range []int{1, 4} {
		t.Run(fmt.Sprintf("P=%d", p), func(t *testing.T) {
			n, conn, s := startServer(t, p, rpc.Options{})
			test(t, n, conn, s)
		})
	}
}

func TestSessionReadsAndWritesInOrder(t *testing.T) {
	eachPartitions(t, func(t *testing.T, _ *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		require.EqualValues(t, 7, s.opened.ClusterId)
		require.NotZero(t, s.opened.Session)
		// 300 unawaited requests over many keys and partitions: each read sees the
		// write before it and none behind it.
		var requests []*stoapb.Request
		for i := range 100 {
			key := fmt.Sprintf("/dir%d/key", i%7)
			requests = append(requests, s.put(key, fmt.Sprint(i)), s.get(key, stoapb.Level(i%2)), s.put(key, "later"))
		}
		for len(requests) > 0 {
			n := min(16, len(requests))
			s.send(requests[:n]...)
			requests = requests[n:]
		}
		var last int64
		for i := range uint64(100) {
			first := s.reply(3*i + 1)
			require.Greater(t, first.Revision, last)
			last = first.Revision
			require.Equal(t, fmt.Sprint(i), s.value(3*i+2))
			require.Greater(t, s.reply(3*i+3).Revision, last)
		}
	})
}

func TestSessionOtherRequests(t *testing.T) {
	eachPartitions(t, func(t *testing.T, _ *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		txn := &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("/a/x"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 0}}},
			Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/a/x"), Value: []byte("1")}}},
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/b/x"), Value: []byte("1")}}},
			},
		}
		all := &pb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0")}
		s.send(
			s.request(stoapb.Kind_TXN, 0, txn),
			s.request(stoapb.Kind_RANGE, 0, all),
			s.request(stoapb.Kind_PUT, 0, &pb.PutRequest{Key: []byte("/a/x"), Value: []byte("2"), PrevKv: true}),
			s.request(stoapb.Kind_PUT, 0, &pb.PutRequest{}),
			s.request(stoapb.Kind_DELETE_RANGE, 0, &pb.DeleteRangeRequest{Key: []byte("/"), RangeEnd: []byte("0"), PrevKv: true}),
			s.request(stoapb.Kind_PUT, 0, &pb.PutRequest{Key: []byte("k"), Lease: 12345}),
			s.request(99, 0, nil),
			s.get("/a/x", stoapb.Level_FAST),
			s.request(stoapb.Kind_SYNC, 0, nil),
			s.request(stoapb.Kind_TXN, stoapb.Level_CAUSAL, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: all}}}}),
		)
		require.True(t, body(t, s.reply(1), new(pb.TxnResponse)).Succeeded)
		require.Len(t, body(t, s.reply(2), new(pb.RangeResponse)).Kvs, 2)
		require.Equal(t, "1", string(body(t, s.reply(3), new(pb.PutResponse)).PrevKv.Value))
		refused := s.reply(4)
		require.EqualValues(t, codes.InvalidArgument, refused.Code)
		require.Equal(t, "etcdserver: key is not provided", refused.Message)
		deleted := s.reply(5)
		require.EqualValues(t, 2, body(t, deleted, new(pb.DeleteRangeResponse)).Deleted)
		refused = s.reply(6)
		require.EqualValues(t, codes.NotFound, refused.Code)
		require.Equal(t, "etcdserver: requested lease not found", refused.Message)
		require.EqualValues(t, codes.Unimplemented, s.reply(7).Code)
		s.reply(8)
		require.GreaterOrEqual(t, s.reply(9).Revision, deleted.Revision)
		require.Empty(t, body(t, s.reply(10), new(pb.TxnResponse)).Responses[0].GetResponseRange().Kvs)
	})
}

func TestSessionResumes(t *testing.T) {
	eachPartitions(t, func(t *testing.T, _ *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		s.send(s.put("k", "1"), s.put("k", "2"), s.request(stoapb.Kind_TXN, 0, &pb.TxnRequest{
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: []byte("3"), PrevKv: true}}}},
		}))
		before := []*stoapb.Reply{s.reply(1), s.reply(2), s.reply(3)}
		s.cancel()

		// The client has seen nothing but the first reply.
		again := openSession(t, conn, &stoapb.OpenSession{Session: s.opened.Session, Next: 2})
		require.EqualValues(t, 60, again.opened.Ttl)
		second := again.put("k", "2")
		third := again.request(stoapb.Kind_TXN, 0, &pb.TxnRequest{
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: []byte("3"), PrevKv: true}}}},
		})
		again.send(second, third, again.put("k", "4"), again.get("k", 0))
		require.Equal(t, before[1].Revision, again.reply(2).Revision)
		repeated := again.reply(3)
		require.Equal(t, before[2].Revision, repeated.Revision)
		require.True(t, proto.Equal(body(t, before[2], new(pb.TxnResponse)), body(t, repeated, new(pb.TxnResponse))))
		require.Greater(t, again.reply(4).Revision, before[2].Revision)
		resp := body(t, again.reply(5), new(pb.RangeResponse))
		require.EqualValues(t, 4, resp.Kvs[0].Version, "each put took effect once")
	})
}

func TestSessionWatchesInOrder(t *testing.T) {
	eachPartitions(t, func(t *testing.T, n *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		watch := func(prefix string, level stoapb.Level, start int64) *stoapb.Request {
			end := prefix[:len(prefix)-1] + "0"
			return s.request(stoapb.Kind_WATCH, level, &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(end), StartRevision: start})
		}
		const dirs = 6 // in several partitions, if there are
		s.send(s.put("/a/1", "before"), watch("/a/", 0, 0), watch("/b/", stoapb.Level_CAUSAL, 0),
			watch("/c/", 0, 0), watch("/d/", 0, 0), watch("/e/", 0, 0), watch("/f/", 0, 0),
			s.put("/a/1", "x"), s.get("/a/1", 0))
		s.reply(1)
		for seq := uint64(2); seq <= dirs+1; seq++ {
			created := body(t, s.reply(seq), new(pb.WatchResponse))
			require.True(t, created.Created)
			require.EqualValues(t, seq, created.WatchId)
		}
		// The event may come before or behind the put's reply, and before the read's.
		events := []*mvccpb.Event{}
		for range 3 {
			r, err := s.recv()
			require.NoError(t, err)
			if r.Event {
				require.EqualValues(t, 2, r.Seq)
				events = append(events, body(t, r, new(pb.WatchResponse)).Events...)
			} else if r.Seq == dirs+3 {
				require.Len(t, events, 1)
			}
		}
		require.Equal(t, "x", string(events[0].Kv.Value))

		// Others write in all directories; each read of this session comes behind the
		// events of what it shows, and these come in the order of revisions.
		const writes = 600
		go func() {
			for i := range writes {
				_, err := n.Put(context.Background(), &pb.PutRequest{Key: fmt.Appendf(nil, "/%c/k", 'a'+i%dirs), Value: fmt.Append(nil, i)})
				if err != nil {
					panic(err)
				}
			}
		}()
		seen, last, lastB, value := map[string]int64{}, int64(0), int64(0), ""
		for got := 0; got < writes; {
			seq := s.next
			s.send(s.get("/b/k", stoapb.Level(seq%2)))
			for {
				r, err := s.recv()
				require.NoError(t, err)
				if !r.Event {
					require.Equal(t, seq, r.Seq)
					for _, kv := range body(t, r, new(pb.RangeResponse)).Kvs {
						require.GreaterOrEqual(t, seen[string(kv.Key)], kv.ModRevision)
					}
					break
				}
				for _, e := range body(t, r, new(pb.WatchResponse)).Events {
					require.Greater(t, e.Kv.ModRevision, last)
					if r.Seq == 3 {
						lastB, value = e.Kv.ModRevision, string(e.Kv.Value)
					}
					last = e.Kv.ModRevision
					seen[string(e.Kv.Key)] = last
					got++
				}
			}
		}

		s.send(s.request(stoapb.Kind_PROGRESS, 0, nil))
		require.GreaterOrEqual(t, s.reply(s.next-1).Revision, last)
		s.send(s.request(stoapb.Kind_CANCEL, 0, &pb.WatchCancelRequest{WatchId: 2}), s.put("/a/1", "y"), s.put("/b/1", "z"), s.get("/b/1", 0))
		require.True(t, body(t, s.reply(s.next-4), new(pb.WatchResponse)).Canceled)
		for seq := s.next - 3; seq < s.next; {
			r, err := s.recv()
			require.NoError(t, err)
			if r.Event {
				require.EqualValues(t, 3, r.Seq, "the other watch is cancelled")
				continue
			}
			require.Equal(t, seq, r.Seq)
			seq++
		}

		// Taken up again, the watch goes on where its client says.
		s.cancel()
		b, err := proto.Marshal(&pb.WatchCreateRequest{Key: []byte("/b/"), RangeEnd: []byte("/b0"), StartRevision: lastB})
		require.NoError(t, err)
		again := openSession(t, conn, &stoapb.OpenSession{
			Session: s.opened.Session, Next: s.next, Watches: []*stoapb.Request{{Seq: 3, Kind: stoapb.Kind_WATCH, Body: b}},
		})
		var values []string
		for len(values) < 2 {
			for _, e := range again.event(3).Events {
				values = append(values, string(e.Kv.Value))
			}
		}
		require.Equal(t, []string{value, "z"}, values)
	})
}

func TestSessionTellsWhereKeysLive(t *testing.T) {
	_, conn, _ := startServer(t, 4, rpc.Options{})
	s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60, PartitionMap: true})
	m := s.opened.PartitionMap
	require.EqualValues(t, 4, m.Partitions)
	require.Len(t, m.Slots, 1024)
	require.Empty(t, m.Rules)
	// An extension whose scope would spread over partitions gets a rule.
	source := "return { scope = { \"/one\", \"/two/\" }, operations = { { op = \"put\", key = \"/one\" } }, put = function(request) return 1 end }"
	s.send(s.put("/em/spread", source))
	require.Zero(t, s.reply(1).Code)
	require.NotNil(t, s.placed)
	require.NotEmpty(t, s.placed.Rules)
	// The extension answers a put of this session's.
	s.send(s.put("/one", "x"))
	require.Equal(t, "1", string(body(t, s.reply(2), new(pb.PutResponse)).PrevKv.Value))
}

func TestSessionFastWatch(t *testing.T) {
	eachPartitions(t, func(t *testing.T, n *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		s.send(s.request(stoapb.Kind_WATCH, stoapb.Level_FAST, &pb.WatchCreateRequest{Key: []byte("k")}))
		require.True(t, body(t, s.reply(1), new(pb.WatchResponse)).Created)
		put, err := n.Put(context.Background(), &pb.PutRequest{Key: []byte("k")})
		require.NoError(t, err)
		require.Equal(t, put.Header.Revision, s.event(1).Events[0].Kv.ModRevision)
		s.send(s.request(stoapb.Kind_PROGRESS, 0, nil))
		require.GreaterOrEqual(t, s.reply(2).Revision, put.Header.Revision)
	})
}

func TestSessionIsClosed(t *testing.T) {
	eachPartitions(t, func(t *testing.T, n *node.Node, conn *grpc.ClientConn, _ *rpc.Server) {
		s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		s.send(s.request(stoapb.Kind_PUT, 0, &pb.PutRequest{Key: []byte("mine"), Lease: s.opened.Session}), s.request(stoapb.Kind_CLOSE, 0, nil))
		s.reply(1)
		s.reply(2)
		_, err := s.recv()
		require.ErrorContains(t, err, "EOF")
		resp, err := n.Range(context.Background(), &pb.RangeRequest{Key: []byte("mine")})
		require.NoError(t, err)
		require.Empty(t, resp.Kvs)
		_, err = tryOpen(t, conn, &stoapb.OpenSession{Session: s.opened.Session, Next: 3})
		require.Equal(t, codes.NotFound, status.Code(err))

		lost := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
		_, err = n.LeaseRevoke(context.Background(), &pb.LeaseRevokeRequest{ID: lost.opened.Session})
		require.NoError(t, err)
		_, err = lost.recv()
		require.Equal(t, codes.NotFound, status.Code(err))
		require.ErrorContains(t, err, "requested lease not found")
	})
}

func TestSessionStreams(t *testing.T) {
	_, conn, server := startServer(t, 2, rpc.Options{})
	s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
	other := openSession(t, conn, &stoapb.OpenSession{Session: s.opened.Session})
	_, err := s.recv()
	require.Equal(t, codes.Aborted, status.Code(err), "%v", err)

	other.next = 9
	other.send(other.put("k", ""))
	_, err = other.recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)

	// An empty batch is answered.
	alive := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
	alive.send()
	m, err := alive.stream.Recv()
	require.NoError(t, err)
	require.Empty(t, m.Replies)

	// A client that doesn't read is not read from any more, and delays no
	// other.
	stuck := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
	value := strings.Repeat("v", 100_000)
	stuck.send(stuck.put("big", value))
	stuck.reply(1)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 100_000 { // more than a window holds
			if stuck.stream.Send(&stoapb.ClientBatch{Requests: []*stoapb.Request{stuck.get("big", 0)}}) != nil {
				return
			}
		}
	}()
	time.Sleep(300 * time.Millisecond)
	alive.send(alive.put("k", "v"), alive.get("k", 0))
	alive.reply(1)
	require.Equal(t, "v", alive.value(2))
	select {
	case <-sent:
		t.Error("nothing stopped the client")
	default:
	}
	stuck.cancel()
	<-sent

	// A stopping server ends the stream, after it has answered.
	alive.send(alive.put("k", "w"))
	alive.reply(3)
	server.SetServing(false)
	_, err = alive.recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}
