package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/session"
)

// sessionClient is a client of a session that goes on from server to server. It
// stands where the stream would.
type sessionClient struct {
	c       *cluster
	token   string // of its user
	on      int
	id, ttl int64
	ask     []func(it *session.Item) // by number, from 1
	handle  session.Handle
	sink    *testSink
	resumed int
	mu      sync.Mutex
	replies []testReply // by number, from 1
	wake    chan struct{}
}

type testReply struct {
	rev   int64
	value string
	err   error
}

// testSink is the sink of one stream. Replies that come on an old one were not
// received.
type testSink struct {
	s     *sessionClient
	stale bool
}

func (k *testSink) Reply(op *session.Op) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.stale {
		return
	}
	if op.Seq != uint64(len(k.s.replies)+1) {
		panic(fmt.Sprintf("reply %d after %d", op.Seq, len(k.s.replies)))
	}
	r := op.Request.(*session.Request)
	k.s.replies = append(k.s.replies, testReply{op.Revision, string(r.Kv.Value()), op.Err})
}
func (k *testSink) Event(uint64, *pb.WatchResponse) {}
func (k *testSink) Placement(*stoapb.PartitionMap)  {}
func (k *testSink) Bytes() int                      { return 0 }
func (k *testSink) Flush() error {
	select {
	case k.s.wake <- struct{}{}:
	default:
	}
	return nil
}

// open opens the session on any server that serves, and sends again what has no
// reply.
func (s *sessionClient) open(seen int64) {
	for deadline := time.Now().Add(20 * time.Second); ; {
		n := s.c.nodes[s.on%len(s.c.nodes)]
		if n == nil {
			s.on++
			continue
		}
		sink := &testSink{s: s}
		s.mu.Lock()
		if s.sink != nil {
			s.sink.stale = true
		}
		s.sink = sink
		from := len(s.replies)
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(withToken(context.Background(), s.token), 5*time.Second)
		h, opened, err := n.OpenSession(ctx, &stoapb.OpenSession{Session: s.id, Ttl: s.ttl, Next: uint64(from + 1), Revision: seen}, nil, sink)
		cancel()
		if err == nil {
			s.id, s.ttl, s.handle = opened.Session, opened.Ttl, h
			h.Start()
			s.sendFrom(from)
			go func() {
				<-h.Done()
				_ = sink.Flush()
			}()
			return
		}
		require.True(s.c.t, time.Now().Before(deadline), "%v", err)
		s.on++
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *sessionClient) sendFrom(from int) {
	if from == len(s.ask) {
		return
	}
	items := session.NewItems(len(s.ask) - from)
	for i := range items {
		items[i].Seq = uint64(from + i + 1)
		s.ask[from+i](&items[i])
	}
	s.mu.Lock()
	answered := len(s.replies)
	s.mu.Unlock()
	_ = s.handle.Take(context.Background(), items, uint64(answered))
}

func (s *sessionClient) send(asks ...func(*session.Item)) {
	from := len(s.ask)
	s.ask = append(s.ask, asks...)
	s.sendFrom(from)
}

// waitForReplies waits for all replies but behind, and reconnects if necessary.
func (s *sessionClient) waitForReplies(behind int) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		s.mu.Lock()
		n := len(s.replies)
		s.mu.Unlock()
		if n >= len(s.ask)-behind {
			return
		}
		require.True(s.c.t, time.Now().Before(deadline), "%d of %d replies", n, len(s.ask))
		select {
		case <-s.wake:
		case <-time.After(time.Second):
		}
		select {
		case <-s.handle.Done():
			s.on++
			s.resumed++
			s.open(0)
		default:
		}
	}
}

func askPut(key, value string) func(*session.Item) {
	body := mustMarshal(&pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	return func(it *session.Item) {
		it.Kind, it.Key, it.Body = stoapb.Kind_PUT, []byte(key), body
	}
}

func askGet(key string, level stoapb.Level) func(*session.Item) {
	return func(it *session.Item) { it.Kind, it.Key, it.Level = stoapb.Kind_RANGE, []byte(key), level }
}

func newSessionClient(c *cluster, on int) *sessionClient {
	return &sessionClient{c: c, on: on, ttl: 60, wake: make(chan struct{}, 1)}
}

// A session survives failures of leaders and of its server: each write takes
// effect once, and in order.
func TestSessionOverDeaths(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	s := newSessionClient(c, 0)
	s.open(0)
	const keys = 5
	puts := 0
	round := func(n int) {
		for range n {
			key := fmt.Sprintf("/dir%d/key", puts%keys)
			s.send(askPut(key, fmt.Sprint(puts)), askPut("/all/key", fmt.Sprint(puts)))
			puts++
		}
	}
	for range 3 {
		round(100)
		s.waitForReplies(150)
		leader := int(c.nodes[s.alive()].Leader()) - 1
		if leader < 0 || c.nodes[leader] == nil {
			leader = s.alive()
		}
		round(50)
		c.stop(leader)
		round(50)
		s.waitForReplies(0)
		c.start(leader)
	}
	require.Positive(t, s.resumed)
	last := int64(0)
	for i, r := range s.replies {
		require.NoError(t, r.err, "request %d", i+1)
		require.Greater(t, r.rev, last, "request %d", i+1)
		last = r.rev
	}
	for k := range keys {
		kv := c.get(s.alive(), fmt.Sprintf("/dir%d/key", k), "").Kvs[0]
		require.EqualValues(t, puts/keys, kv.Version, "every put took effect once")
	}
	require.EqualValues(t, puts, c.get(s.alive(), "/all/key", "").Kvs[0].Version)
}

func (s *sessionClient) alive() int {
	for i, n := range s.c.nodes {
		if n != nil {
			return i
		}
	}
	return -1
}

// A client that is given another's revision sees the same state on any server;
// the example of AGORA §II.
func TestSessionCausalReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 4)
	c.ready()
	// The leader's server answers before the others have received it.
	leader := int(c.nodes[0].Leader()) + 2
	writer, readers := newSessionClient(c, leader), []*sessionClient{newSessionClient(c, leader+1), newSessionClient(c, leader+2)}
	writer.open(0)
	for _, r := range readers {
		r.open(0)
	}
	for i := range 50 {
		value := fmt.Sprint(i)
		for part := range 4 {
			writer.send(askPut(fmt.Sprintf("/data%d/x", part), value))
		}
		writer.send(askPut("/ready/x", value))
		writer.waitForReplies(0)
		token := writer.replies[len(writer.replies)-1].rev
		for _, r := range readers {
			get := askGet(fmt.Sprintf("/data%d/x", i%4), stoapb.Level_CAUSAL)
			r.send(func(it *session.Item) {
				get(it)
				it.Token = token
			}, askGet("/ready/x", stoapb.Level_CAUSAL), askGet(fmt.Sprintf("/data%d/x", (i+1)%4), stoapb.Level_STRICT))
			r.waitForReplies(0)
			for _, reply := range r.replies[len(r.replies)-3:] {
				require.NoError(t, reply.err)
				require.Equal(t, value, reply.value)
			}
		}
	}
}

func mustMarshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}
