package compat

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// sessions is matrix for tests of features that etcd doesn't have.
func sessions(t *testing.T, test func(t *testing.T, e *env, c *client.Client)) {
	t.Helper()
	onlyStoa(t)
	matrix(t, func(t *testing.T, e *env) { test(t, e, e.stoa()) })
}

func onlyStoa(t *testing.T) {
	t.Helper()
	if bin, err := process.UnderTest(); err != nil || !bin.Stoa {
		t.Skip("etcd has no sessions", err)
	}
}

// stoa makes a client of stoa's own that ends with the test.
func (e *env) stoa() *client.Client {
	e.t.Helper()
	c, err := client.New(client.Config{Endpoints: e.Endpoints()})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *env) open(c *client.Client, opts ...client.SessionOption) *client.Session {
	e.t.Helper()
	s, err := c.Session(e.ctx, opts...)
	require.NoError(e.t, err)
	return s
}

// TestSessionOrder sends without waiting, to keys of all partitions: requests
// take effect in the order in which they were sent, and every read reflects the
// requests before it.
func TestSessionOrder(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		s := e.open(c)
		watcher := e.open(c)
		feed := client.NewFeed()
		for _, d := range dirs {
			_, err := watcher.WatchInto(e.ctx, feed, e.root+d+"/", clientv3.WithPrefix())
			require.NoError(t, err)
		}
		var puts []*client.Future[*clientv3.PutResponse]
		var gets []*client.Future[*clientv3.GetResponse]
		const n = 400
		for i := range n {
			k := e.key(dirs[i%len(dirs)], i)
			puts = append(puts, s.PutAsync(k, fmt.Sprint(i)))
			gets = append(gets, s.At(client.Level(i%2)).GetAsync(k))
		}
		last := int64(0)
		for i := range n {
			p, err := puts[i].Wait(e.ctx)
			require.NoError(t, err)
			require.Greater(t, p.Header.Revision, last)
			last = p.Header.Revision
			g, err := gets[i].Wait(e.ctx)
			require.NoError(t, err)
			require.Len(t, g.Kvs, 1)
			require.Equal(t, fmt.Sprint(i), string(g.Kvs[0].Value))
			require.GreaterOrEqual(t, g.Header.Revision, last)
		}
		require.GreaterOrEqual(t, int64(s.Token()), last)
		for i := 0; i < n; {
			got, err := feed.Next(e.ctx)
			require.NoError(t, err)
			for _, ev := range got.Events {
				require.Equal(t, fmt.Sprint(i), string(ev.Kv.Value), "events of several watches come in their common order")
				i++
			}
		}
		require.NoError(t, s.Close(e.ctx))
		require.NoError(t, watcher.Close(e.ctx))
	})
}

// TestSessionOperations does one of each.
func TestSessionOperations(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		s := e.open(c)
		a, b := e.key("a", 1), e.key("b", 1)
		txn, err := s.Txn(e.ctx).If(clientv3.Compare(clientv3.Version(a), "=", 0)).
			Then(clientv3.OpPut(a, "1"), clientv3.OpPut(b, "1", client.Ephemeral())).Commit()
		require.NoError(t, err)
		require.True(t, txn.Succeeded)
		got, err := s.Get(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, got.Kvs, 2)
		require.Equal(t, txn.Header.Revision, got.Kvs[0].ModRevision)
		require.EqualValues(t, s.ID(), got.Kvs[1].Lease)
		require.Equal(t, e.get(a).Header.ClusterId, got.Header.ClusterId)
		_, err = s.Put(e.ctx, "", "no key")
		require.Error(t, err)
		wrong := s.PutAsync(a, "", clientv3.WithLease(1))
		right := s.PutAsync(a, "2", clientv3.WithPrevKV())
		_, err = wrong.Wait(e.ctx)
		require.Error(t, err, "one that fails harms no other")
		r, err := right.Wait(e.ctx)
		require.NoError(t, err)
		require.Equal(t, "1", string(r.PrevKv.Value))
		del, err := s.Delete(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.EqualValues(t, 2, del.Deleted)

		batch := s.Batch(client.Independent())
		for i := range 40 {
			batch.Put(e.key(dirs[i%len(dirs)], i), "v", client.Ephemeral())
		}
		require.NoError(t, batch.Run(e.ctx))
		count, err := s.Get(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		require.EqualValues(t, 40, count.Count)

		w, err := e.open(c).Watch(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.NoError(t, s.Close(e.ctx))
		n, err := w.Next(e.ctx)
		require.NoError(t, err)
		require.Len(t, n.Events, 40, "all ephemeral keys go at one revision")
	})
}

// TestSessionCausal reads at every member the state that another session has
// seen.
func TestSessionCausal(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		writer := e.open(c)
		var readers []*client.Session
		for _, endpoint := range e.Endpoints() {
			readers = append(readers, e.open(c, client.WithEndpoints(endpoint), client.WithLevel(client.Causal)))
		}
		for round := range 50 {
			for i, d := range dirs {
				writer.PutAsync(e.key(d, i), fmt.Sprint(round))
			}
			_, err := writer.Put(e.ctx, e.key("ready", 0), fmt.Sprint(round))
			require.NoError(t, err)
			for _, r := range readers {
				r.See(writer.Token())
				for i, d := range dirs {
					got, err := r.Get(e.ctx, e.key(d, i))
					require.NoError(t, err)
					require.Len(t, got.Kvs, 1)
					require.Equal(t, fmt.Sprint(round), string(got.Kvs[0].Value))
				}
				_, err := r.At(client.Fast).Get(e.ctx, e.key("a", 0))
				require.NoError(t, err)
			}
		}
	})
}

// TestSessionMutex runs etcd's mutexes and elections over sessions, whose leases
// are those of the locks.
func TestSessionMutex(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		inside, count := 0, 0
		var wg sync.WaitGroup
		for range 4 {
			s := e.open(c)
			wg.Go(func() {
				cs, err := concurrency.NewSession(s.Etcd(), concurrency.WithLease(s.ID()))
				if err != nil {
					t.Error(err)
					return
				}
				m := concurrency.NewMutex(cs, e.root+"lock")
				for range 10 {
					if err := m.Lock(e.ctx); err != nil {
						t.Error(err)
						return
					}
					inside++
					if inside != 1 {
						t.Error("two are inside")
					}
					count++
					inside--
					if err := m.Unlock(e.ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 40, count)

		s, other := e.open(c), e.open(c)
		cs, err := concurrency.NewSession(s.Etcd(), concurrency.WithTTL(20)) // with a lease of its own
		require.NoError(t, err)
		first := concurrency.NewElection(cs, e.root+"leader")
		require.NoError(t, first.Campaign(e.ctx, "first"))
		cs2, err := concurrency.NewSession(other.Etcd(), concurrency.WithLease(other.ID()))
		require.NoError(t, err)
		second := concurrency.NewElection(cs2, e.root+"leader")
		elected := make(chan error, 1)
		go func() { elected <- second.Campaign(e.ctx, "second") }()
		ctx, cancel := context.WithCancel(e.ctx)
		defer cancel()
		seen := second.Observe(ctx)
		require.Equal(t, "first", string((<-seen).Kvs[0].Value))
		require.NoError(t, cs.Close(), "revokes its lease")
		require.NoError(t, <-elected)
		for r := range seen {
			if string(r.Kvs[0].Value) == "second" {
				break
			}
		}
		_, err = concurrency.NewSTM(s.Etcd(), func(stm concurrency.STM) error {
			stm.Put(e.key("a", 1), stm.Get(e.key("b", 1))+"x")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "x", string(e.get(e.key("a", 1)).Kvs[0].Value))
	})
}

// TestSessionEtcdPackages runs the other packages of etcd's client.
func TestSessionEtcdPackages(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		s := e.open(c)
		t.Run("namespace", func(t *testing.T) {
			prefix := e.root + "ns/"
			kv, w := namespace.NewKV(s.KV(), prefix), namespace.NewWatcher(s.Watcher(), prefix)
			defer w.Close()
			events := w.Watch(e.ctx, "k", clientv3.WithCreatedNotify())
			require.True(t, (<-events).Created)
			_, err := kv.Put(e.ctx, "k", "v")
			require.NoError(t, err)
			require.Equal(t, "k", string((<-events).Events[0].Kv.Key))
			require.Len(t, e.get(prefix+"k").Kvs, 1)
		})
		t.Run("mirror", func(t *testing.T) {
			prefix := e.root + "mirror/"
			for i := range 5 {
				e.put(fmt.Sprint(prefix, i), "v")
			}
			ctx, cancel := context.WithCancel(e.ctx)
			defer cancel()
			m := mirror.NewSyncer(s.Etcd(), prefix, 0)
			base, errs := m.SyncBase(ctx)
			n := 0
			for r := range base {
				n += len(r.Kvs)
			}
			require.NoError(t, <-errs)
			require.Equal(t, 5, n)
			updates := m.SyncUpdates(ctx)
			e.put(prefix+"5", "v")
			require.Equal(t, prefix+"5", string((<-updates).Events[0].Kv.Key))
		})
		t.Run("leasing", func(t *testing.T) {
			kv, done, err := leasing.NewKV(s.Etcd(), e.root+"leases/")
			require.NoError(t, err)
			defer done()
			key := e.key("leasing", 1)
			e.put(key, "1")
			for range 3 {
				got, err := kv.Get(e.ctx, key)
				require.NoError(t, err)
				require.Equal(t, "1", string(got.Kvs[0].Value))
			}
			kv2, done2, err := leasing.NewKV(e.open(c).Etcd(), e.root+"leases/")
			require.NoError(t, err)
			defer done2()
			_, err = kv2.Put(e.ctx, key, "2")
			require.NoError(t, err)
			got, err := kv.Get(e.ctx, key)
			require.NoError(t, err)
			require.Equal(t, "2", string(got.Kvs[0].Value))
		})
	})
}

// TestSessionFailover kills the session's server, again and again, while it
// sends without waiting: every write takes effect once, in order, and watches
// see each once.
func TestSessionFailover(t *testing.T) {
	onlyStoa(t)
	own(t, 3, nil, func(t *testing.T, e *env) {
		c := e.stoa()
		s := e.open(c)
		feed := client.NewFeed()
		_, err := s.WatchInto(e.ctx, feed, e.root, clientv3.WithPrefix())
		require.NoError(t, err)

		stop := make(chan struct{})
		var crash sync.WaitGroup
		crash.Go(func() { e.crashMembers(s, 3, stop) })
		var puts []*client.Future[*clientv3.PutResponse]
		for n := 0; ; n++ {
			select {
			case <-stop:
			default:
				puts = append(puts, s.PutAsync(e.key(dirs[n%len(dirs)], n), fmt.Sprint(n)))
				time.Sleep(time.Millisecond)
				continue
			}
			break
		}
		crash.Wait()
		last := int64(0)
		for i, p := range puts {
			got, err := p.Wait(e.ctx)
			require.NoError(t, err, "put %d", i)
			require.Greater(t, got.Header.Revision, last)
			last = got.Header.Revision
		}
		all, err := s.Get(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, all.Kvs, len(puts))
		for _, kv := range all.Kvs {
			require.EqualValues(t, 1, kv.Version, "%s took effect once", kv.Key)
		}
		for i := 0; i < len(puts); {
			n, err := feed.Next(e.ctx)
			require.NoError(t, err)
			for _, ev := range n.Events {
				require.Equal(t, fmt.Sprint(i), string(ev.Kv.Value))
				i++
			}
		}
		t.Logf("%d puts over %d crashes", len(puts), 3)
	})
}

// crashMembers kills and restarts the member that the session is connected to.
func (e *env) crashMembers(s *client.Session, times int, done chan struct{}) {
	defer close(done)
	for range times {
		time.Sleep(500 * time.Millisecond)
		victim := e.serverOf(s)
		if victim == nil {
			e.t.Error("the session finds no server again")
			return
		}
		if err := victim.Kill(); err != nil {
			e.t.Error(err)
			return
		}
		time.Sleep(time.Second)
		if err := e.Restart(e.ctx, victim); err != nil {
			e.t.Error(err)
			return
		}
	}
	time.Sleep(500 * time.Millisecond)
}

// serverOf is the server to which a session is connected, as soon as it is.
func (e *env) serverOf(s *client.Session) *process.Server {
	for ; e.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		member := s.Member()
		for _, srv := range e.Servers {
			st, err := e.cli.Status(e.ctx, srv.ClientURL)
			if err == nil && st.Header.MemberId == member {
				return srv
			}
		}
	}
	return nil
}

// TestSessionLife leaves one session alone for longer than its ttl, and another
// without keep-alives.
func TestSessionLife(t *testing.T) {
	onlyStoa(t)
	waiting(t, func(t *testing.T, e *env) {
		c := e.stoa()
		const ttl = 5 * time.Second // more than a loaded machine stands still for
		idle := e.open(c, client.WithTTL(ttl))
		_, err := idle.Put(e.ctx, e.key("a", 1), "stays", client.Ephemeral())
		require.NoError(t, err)
		gone := e.stoa()
		lost := e.open(gone, client.WithTTL(ttl))
		_, err = lost.Put(e.ctx, e.key("b", 1), "goes", client.Ephemeral())
		require.NoError(t, err)
		w, err := idle.Watch(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		n, err := w.Next(e.ctx)
		require.NoError(t, err)
		require.Len(t, n.Events, 1)
		require.Equal(t, e.key("b", 1), string(n.Events[0].Kv.Key))
		time.Sleep(idle.TTL())
		require.NoError(t, idle.Err())
		got, err := idle.Get(e.ctx, e.root, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)

		_, err = e.cli.Revoke(e.ctx, idle.ID())
		require.NoError(t, err)
		_, err = idle.Put(e.ctx, e.key("a", 1), "too late")
		require.ErrorIs(t, err, client.ErrSessionExpired)
	})
}

// TestSessionPlacement compares the client's partition of keys with the
// servers' counts.
func TestSessionPlacement(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		s := e.open(c)
		counts := func() (keys []int64) {
			r, err := c.Partitions(e.ctx)
			require.NoError(t, err)
			for _, p := range r.Partitions {
				keys = append(keys, p.Keys)
			}
			return keys
		}
		_, err := s.Sync(e.ctx)
		require.NoError(t, err)
		want := counts()
		b := s.Batch(client.Independent())
		for i := range 100 {
			key := fmt.Sprintf("%sdirectory%d/key", e.root, i)
			b.Put(key, "v")
			p, known := c.Partition(key)
			require.True(t, known)
			want[p]++
		}
		require.NoError(t, b.Run(e.ctx))
		require.Eventually(t, func() bool { return fmt.Sprint(counts()) == fmt.Sprint(want) }, time.Minute, 20*time.Millisecond,
			"want %v", want)
	})
}
