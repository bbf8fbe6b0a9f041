package compose

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// sessions is a server of sessions that refuses a key, when it is told to. It answers in order.
type sessions struct {
	stoapb.UnimplementedSessionsServer
	pb.UnimplementedLeaseServer
	refuse chan struct{}
}

func (s *sessions) Open(g stoapb.Sessions_OpenServer) error {
	batch, err := g.Recv()
	if err != nil {
		return err
	}
	if err := g.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: batch.Open.Ttl}}); err != nil {
		return err
	}
	for ; err == nil; batch, err = g.Recv() {
		for _, r := range batch.Requests {
			if err := g.Send(&stoapb.ServerBatch{Replies: []*stoapb.Reply{s.answer(r)}}); err != nil {
				return err
			}
		}
	}
	return err
}

func (s *sessions) answer(r *stoapb.Request) *stoapb.Reply {
	a := &stoapb.Reply{Seq: r.Seq, Revision: 1}
	var q pb.RangeRequest
	if r.Kind == stoapb.Kind_RANGE && proto.Unmarshal(r.Body, &q) == nil && string(q.Key) == "/refused" {
		<-s.refuse
		a.Code, a.Message = uint32(codes.PermissionDenied), rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)
	}
	return a
}

// overSessions is a client of a stoa cluster, with a session that is open.
func overSessions(t *testing.T) (*Client, *sessions) {
	s := &sessions{refuse: make(chan struct{})}
	return overServer(t, s), s
}

func overServer(t *testing.T, s interface {
	stoapb.SessionsServer
	pb.LeaseServer
}) *Client {
	address := serve(t, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, s)
		pb.RegisterLeaseServer(g, s)
	})
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {Endpoints: []string{address}, Kind: Stoa}},
		Routes:   []Route{{Cluster: "one"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Get(t.Context(), "/opened")
	require.NoError(t, err)
	return c
}

// Of the reads behind one that leads and is refused, those fail that nothing leads, whatever is sent behind them.
func TestReadsBehindARefusedOneOverASession(t *testing.T) {
	for _, test := range []struct {
		name string
		lead func(*Client) func() error
	}{
		{"a synced read", func(c *Client) func() error {
			f := c.Synced().GetAsync("/led")
			return func() error { _, err := f.Wait(context.Background()); return err }
		}},
		{"a synced read of several keys", func(c *Client) func() error {
			f := c.Synced().GetAsync("/led", clientv3.WithPrefix())
			return func() error { _, err := f.Wait(context.Background()); return err }
		}},
		{"an update", func(c *Client) func() error {
			f := c.PutAsync("/led", "")
			return func() error { _, err := f.Wait(context.Background()); return err }
		}},
		{"an update of several keys", func(c *Client) func() error {
			f := c.TxnAsync(nil, []clientv3.Op{clientv3.OpPut("/led", ""), clientv3.OpPut("/too", "")}, nil)
			return func() error { _, err := f.Wait(context.Background()); return err }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, s := overSessions(t)
			c.core.unlead()
			refused := c.GetAsync("/refused")
			behind := c.GetAsync("/behind")
			led := test.lead(c)
			after := c.GetAsync("/after")
			close(s.refuse)
			_, err := refused.Wait(t.Context())
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
			_, err = behind.Wait(t.Context())
			require.ErrorIs(t, err, ErrBehind)
			require.NoError(t, led())
			_, err = after.Wait(t.Context())
			require.NoError(t, err, "it has one that leads")
			_, err = c.Get(t.Context(), "/next")
			require.NoError(t, err)
		})
	}
}

// endingSessions is a server of sessions that takes an update, ends its stream without an answer, and lets no other begin.
type endingSessions struct {
	sessions
	end, again error
	began      atomic.Bool
}

func (s *endingSessions) Open(g stoapb.Sessions_OpenServer) error {
	batch, err := g.Recv()
	if err != nil {
		return err
	}
	if s.began.Swap(true) {
		return s.again
	}
	if err := g.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: batch.Open.Ttl}}); err != nil {
		return err
	}
	for ; err == nil; batch, err = g.Recv() {
		for _, r := range batch.Requests {
			if r.Kind == stoapb.Kind_PUT {
				return s.end
			}
			if err := g.Send(&stoapb.ServerBatch{Replies: []*stoapb.Reply{s.answer(r)}}); err != nil {
				return err
			}
		}
	}
	return err
}

// The end of a session isn't the refusal of an update that it had no answer to, whatever the reason.
func TestAnUpdateWhoseSessionEnds(t *testing.T) {
	for name, s := range map[string]*endingSessions{
		"a deleted user":          {end: rpctypes.ErrGRPCAuthOldRevision, again: rpctypes.ErrGRPCPermissionDenied},
		"a client without a user": {end: rpctypes.ErrGRPCUserEmpty, again: rpctypes.ErrGRPCUserEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			c := overServer(t, s)
			_, err := c.Put(t.Context(), "/lost", "")
			var of *ClusterError
			require.ErrorAs(t, err, &of)
			require.True(t, of.Unknown, "%v", err)
		})
	}
}

// A read that was admitted behind one that leads isn't led if that is refused before it is sent.
func TestAReadSentWhenItsLeaderIsRefused(t *testing.T) {
	c, s := overSessions(t)
	c.core.unlead()
	refused := c.GetAsync("/refused")
	r := c.core.routes.find("/behind")
	c.core.mu.Lock()
	ch, act := c.core.quick(r, read)
	require.Equal(t, send, act)
	close(s.refuse)
	_, err := refused.Wait(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	f, err := ch.get(t.Context(), r, act, "/behind")
	c.core.mu.Unlock()
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.ErrorIs(t, err, ErrBehind)
}

// The same on etcd: the read is synced.
func TestACallSentWhenItsLeaderIsRefused(t *testing.T) {
	c, home, _, _ := mirroredCore(t)
	l := c.links[home]
	s := &refusing{refuse: make(chan struct{}), local: map[string]bool{}}
	l.cluster.reached(t, s)
	e := newCalls(l)
	l.by = e
	done := make(chan error, 1)
	r := &request{placement: placement{cluster: home, message: &pb.RangeRequest{Key: []byte("/behind")}}, act: send,
		done: func(_ proto.Message, err error) { done <- err }}
	e.mu.Lock() // as unled does, which finds nothing
	sent := make(chan error, 1)
	go func() { sent <- e.send(t.Context(), r) }()
	time.Sleep(20 * time.Millisecond) // so that it waits for the lock
	l.failed.Store(true)
	e.mu.Unlock()
	require.NoError(t, <-sent)
	require.NoError(t, <-done)
	require.Equal(t, map[string]bool{"/behind": false}, s.local)
}

// No glance is sent behind a read that was refused, though nothing that leads is unanswered any more.
func TestAGlanceWhenItsLeaderIsRefused(t *testing.T) {
	c, _, own, view := mirroredCore(t)
	address := serve(t, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, &sessions{refuse: make(chan struct{})})
	})
	west := c.links[own].cluster
	west.closed, west.members, west.kind = false, []string{address}, Stoa
	t.Cleanup(west.close)
	near, _, err := west.connect(t.Context())
	require.NoError(t, err)
	west.nearby.first().open(near)
	over := west.nearby.first().session.Load()
	require.NotNil(t, over)

	l := c.links[view]
	e := newCalls(l)
	l.by = e
	r := c.routes.find("/all/a")
	l.view.home.Store(1)
	known := &place{over: over.connection(), asked: time.Now().Add(time.Hour)}
	known.mark.Source = 1
	l.view.near.Load().places(r).learn(known)
	require.NotNil(t, e.look(r))
	l.failed.Store(true)
	require.Nil(t, e.look(r))
}

// ended is a session that has ended, some of whose requests don't know yet.
type ended struct{ sink }

func (*ended) alive() bool { return false }

// When a session has ended nothing is sent over another one before all its requests have failed: what was sent behind
// them fails with them.
func TestASessionEndsBeforeTheNextBegins(t *testing.T) {
	c, home, _, _ := mirroredCore(t)
	l := c.links[home]
	l.by = &sink{}
	submit := func(done func(error)) {
		r := &request{placement: placement{cluster: home, message: &pb.PutRequest{Key: []byte("/a")}}, kind: update,
			done: func(_ proto.Message, err error) { done(err) }}
		require.NoError(t, c.submit(t.Context(), r))
	}
	var mu sync.Mutex
	var behind error
	submit(func(error) {})
	c.mu.Lock()
	l.by = &ended{}
	c.mu.Unlock()
	submit(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		behind = err
	})
	failed := func() error {
		mu.Lock()
		defer mu.Unlock()
		return behind
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, failed(), "another session was opened")
	require.Error(t, l.finish(update, ErrSilent))
	require.Eventually(t, func() bool { return failed() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, failed(), ErrBehind)
}
