package compose

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// A client and its forks say that they are closed, those that come later too, at once.
func TestAfterClose(t *testing.T) {
	for name, used := range map[string]bool{"used": true, "never used": false} {
		t.Run(name, func(t *testing.T) {
			c := overTwo(t)
			fork, closed := c.Fork(), c.Fork()
			if used {
				for _, c := range []*Client{c, fork, closed} {
					_, err := c.Put(t.Context(), "/c/k", "v")
					require.NoError(t, err)
				}
				_, err := c.shared.locker.lease(t.Context(), c.shared.clusters[0])
				require.NoError(t, err)
			}
			require.NoError(t, closed.Close())
			requireClosed(t, closed, false)
			require.NoError(t, c.Close())
			for _, c := range []*Client{c, fork, c.Fork(), c.Synced(), fork.Fork()} {
				requireClosed(t, c, true)
			}
			require.NoError(t, c.Close())
		})
	}
}

// Transactions begin while their client is closed.
func TestTransactionsBesideClose(t *testing.T) {
	for range 20 {
		c := overTwo(t)
		done := make(chan error, 4)
		for range cap(done) {
			go func() {
				var err error
				for err == nil {
					err = putBoth(t, c, "/a/t", "/b/t")
				}
				done <- err
			}()
		}
		time.Sleep(time.Millisecond)
		require.NoError(t, c.Close())
		for range cap(done) {
			require.Error(t, <-done)
		}
	}
}

// What a transaction has left to do, and can't, ends with its client.
func TestNothingIsCompletedBehindClose(t *testing.T) {
	t.Parallel()
	const timeout = patience
	address := serve(t, func(g *grpc.Server) {
		s := standingIn{says: true, did: make(chan *pb.TxnRequest, 1000), answers: func(t *pb.TxnRequest) bool { return puts(t, "/b/t") }}
		s.guarding = guarding{readable: []string{commit.Prefix}}
		pb.RegisterKVServer(g, s)
		pb.RegisterLeaseServer(g, granting{})
	})
	one := Cluster{Endpoints: []string{address}, Kind: Etcd}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": one, "b": one}, Timeout: timeout,
		Routes: []Route{{Prefix: "/a/", Cluster: "a", Transactions: true}, {Prefix: "/b/", Cluster: "b", Transactions: true}},
	})
	require.NoError(t, err)
	_, err = c.Txn(t.Context()).Then(clientv3.OpPut("/a/t", ""), clientv3.OpPut("/b/t", "")).Commit()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, c.Close())
	c.shared.locker.work.Wait()
	require.Less(t, time.Since(began), 10*timeout)
}

// Events that come while their feed is closed are lost like those before them.
func TestEventsBehindClose(t *testing.T) {
	c := overTwo(t)
	f := c.NewFeed()
	w := &FeedWatch{f: f, seg: segment{route: c.core.routes.find("/a/k")}, part: &part{of: c.shared.clusters[0]}, lane: f.merger.add(0, 1)}
	bring := func(revision int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		w.bringEvents([]*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte("/a/k"), ModRevision: revision}}})
		f.give()
	}
	bring(2)
	f.Close()
	bring(3)
	n, err := f.Next(t.Context())
	require.ErrorIs(t, err, ErrFeedClosed, "%v", n)
}

// What waits for the connection to a cluster doesn't wait for it any longer when its client is closed.
func TestWaitingBesideClose(t *testing.T) {
	const timeout = 3 * time.Second
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": silent("127.0.0.1:1")}, Routes: []Route{{Cluster: "one"}}, Timeout: timeout, DialTimeout: timeout,
	})
	require.NoError(t, err)
	defer c.Close()
	fork := c.Fork()
	first, second := fork.PutAsync("a", ""), fork.GetAsync("b")
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	require.NoError(t, fork.Close())
	_, err = first.Wait(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	_, err = second.Wait(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Less(t, time.Since(began), timeout/2)
}

// leaving is a member that grants sessions and leases, and doesn't answer that they end.
type leaving struct {
	stoapb.UnimplementedSessionsServer
	granting
	open chan struct{} // sessions may be
	end  chan struct{} // has room for one: something is to end
}

func (s leaving) Open(g stoapb.Sessions_OpenServer) error {
	batch, err := g.Recv()
	if err != nil {
		return err
	}
	<-s.open
	if err := g.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: batch.Open.Ttl}}); err != nil {
		return err
	}
	for batch, err = g.Recv(); err == nil; batch, err = g.Recv() {
		if len(batch.Requests) > 0 && batch.Requests[0].Kind == stoapb.Kind_CLOSE {
			s.end <- struct{}{}
		}
	}
	return err
}

func (s leaving) LeaseRevoke(ctx context.Context, _ *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s.end <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// What a closed client has at a silent cluster keeps none of its callers waiting.
func TestBesideClose(t *testing.T) {
	t.Parallel()
	over := func(kind Kind) (*Client, leaving) {
		s := leaving{open: make(chan struct{}), end: make(chan struct{}, 1)}
		address := serve(t, func(g *grpc.Server) {
			stoapb.RegisterSessionsServer(g, s)
			pb.RegisterLeaseServer(g, s)
		})
		c, err := New(Config{
			Clusters: map[string]Cluster{"one": {Endpoints: []string{address}, Kind: kind}}, Timeout: patience,
			Routes: []Route{{Cluster: "one", Transactions: kind == Etcd}},
		})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c, s
	}
	atOnce := func(t *testing.T, c *Client, s leaving) {
		<-s.end
		began := time.Now()
		_, err := c.Get(t.Context(), "k")
		require.ErrorIs(t, err, ErrClosed)
		require.Less(t, time.Since(began), patience/2)
	}
	t.Run("a session that is open behind Close", func(t *testing.T) {
		c, s := over(Stoa)
		fork := c.Fork()
		opening := fork.GetAsync("k")
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, fork.Close())
		close(s.open)
		atOnce(t, fork, s)
		_, err := opening.Wait(t.Context())
		require.ErrorIs(t, err, ErrClosed)
	})
	t.Run("a lease of transactions", func(t *testing.T) {
		c, s := over(Etcd)
		_, err := c.shared.locker.lease(t.Context(), c.shared.clusters[0])
		require.NoError(t, err)
		go c.Close()
		atOnce(t, c, s)
	})
}

// What the client sees while a session is opened, in an event, is seen when it is used.
func TestSeenWhileASessionIsOpened(t *testing.T) {
	s := leaving{open: make(chan struct{}), end: make(chan struct{}, 2)}
	close(s.open)
	c := ofKind(t, Stoa, patience, func(g *grpc.Server) { stoapb.RegisterSessionsServer(g, s) })
	c.core.saw(0, 10)
	near, _, err := c.shared.clusters[0].connect(t.Context())
	require.NoError(t, err)
	l := c.core.links[0]
	found, err := newChannel(t.Context(), l, near)
	require.NoError(t, err)
	c.core.saw(0, 20)
	require.True(t, l.take(found))
	require.EqualValues(t, 20, found.seen())
}

// Two clusters that don't answer don't make Close take the time of both.
func TestCloseBesideSilentClusters(t *testing.T) {
	t.Parallel()
	const timeout = patience
	s := leaving{open: make(chan struct{}), end: make(chan struct{}, 2)}
	close(s.open)
	address := serve(t, func(g *grpc.Server) { stoapb.RegisterSessionsServer(g, s) })
	one := Cluster{Endpoints: []string{address}, Kind: Stoa}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": one, "b": one}, Timeout: timeout,
		Routes: []Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
	})
	require.NoError(t, err)
	for _, l := range c.core.links {
		require.NoError(t, l.open(time.Now().Add(timeout)))
	}
	began := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(began), timeout*3/2)
}

func overTwo(t *testing.T) *Client {
	address := serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, guarding{readable: []string{commit.Prefix}})
		pb.RegisterLeaseServer(g, granting{})
	})
	return over(t, address)
}

// over is a client of two clusters, with transactions over both, at one address.
func over(t *testing.T, address string) *Client {
	one := Cluster{Endpoints: []string{address}, Kind: Etcd}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": one, "b": one},
		Routes: []Route{{Prefix: "/a/", Cluster: "a", Transactions: true}, {Prefix: "/b/", Cluster: "b", Transactions: true},
			{Prefix: "/c/", Cluster: "b"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// requireClosed wants errors of all calls that have a place in the order, and, with all, of the others too: the leases and
// feeds of a fork that is closed alone are not its own.
func requireClosed(t *testing.T, c *Client, all bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	calls := map[string]func() error{
		"put":         func() error { _, err := c.Put(ctx, "/a/k", "v"); return err },
		"put later":   func() error { _, err := c.PutAsync("/c/k", "v").Wait(ctx); return err },
		"get":         func() error { _, err := c.Get(ctx, "/c/k"); return err },
		"get locked":  func() error { _, err := c.Get(ctx, "/a/k"); return err },
		"transaction": func() error { _, err := c.Txn(ctx).Then(clientv3.OpPut("/c/k", "v")).Commit(); return err },
		"over clusters": func() error {
			_, err := c.Txn(ctx).Then(clientv3.OpPut("/a/k", "v"), clientv3.OpPut("/b/k", "v")).Commit()
			return err
		},
		"watch": func() error { w := <-c.Watch(ctx, "/c/k"); return w.Err() },
		"sync":  func() error { return c.Sync(ctx, "a") },
	}
	if all {
		maps.Copy(calls, map[string]func() error{
			"grant":   func() error { _, err := c.Grant(ctx, 10); return err },
			"renew":   func() error { _, err := c.KeepAliveOnce(ctx, 10); return err },
			"session": func() error { _, err := c.Session(ctx); return err },
			"feed": func() error {
				f := c.NewFeed()
				defer f.Close()
				if _, err := f.Watch(ctx, "/c/"); err != nil {
					return err
				}
				_, err := f.Next(ctx)
				return err
			},
		})
	}
	for what, call := range calls {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	require.Less(t, time.Since(began), 3*time.Second, "at once")
}
