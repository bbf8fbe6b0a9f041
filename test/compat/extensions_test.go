package compat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

// needExtensions skips on etcd, which has none.
func needExtensions(t *testing.T) {
	t.Helper()
	if !underTest(t).Stoa {
		t.Skip("etcd runs no extensions")
	}
}

// recipe registers a recipe for this test alone and returns its root and a context to
// call it with.
func (e *env) recipe(name string) (context.Context, string) {
	e.t.Helper()
	root := e.root + name
	if name != "counter" && name != "rename" {
		root += "/"
	}
	own := strings.Trim(strings.ReplaceAll(e.root, "/", "-"), "-") + "-" + name
	ctx := recipes.WithClient(e.ctx, "tester")
	require.NoError(e.t, recipes.RegisterAt(ctx, e.cli, own, name, root))
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e.cli.Delete(recipes.WithClient(ctx, "tester"), "/em/"+own)
	})
	return ctx, root
}

// extended runs a test on each shape, with n clients, spread over the servers.
func extended(t *testing.T, n int, test func(t *testing.T, e *env, clients []*clientv3.Client)) {
	needExtensions(t)
	matrix(t, func(t *testing.T, e *env) {
		clients := make([]*clientv3.Client, n)
		for i := range clients {
			clients[i] = e.client(e.Endpoints()[i%e.nodes])
		}
		test(t, e, clients)
	})
}

// together runs a function n times at once and fails with the first error.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	for range n {
		require.NoError(t, <-errs)
	}
}

func (e *env) session(ttl int64) clientv3.LeaseID {
	e.t.Helper()
	l, err := e.cli.Grant(e.ctx, ttl)
	require.NoError(e.t, err)
	return l.ID
}

// exists waits for a key: by it a test knows that somebody waits.
func (e *env) exists(key string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return len(e.get(key).Kvs) == 1 }, 10*time.Second, 5*time.Millisecond, key)
}

func TestRecipeCounter(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("counter")
		const each = 40
		var seen sync.Map
		together(t, len(clients), func(i int) error {
			c := recipes.NewCounter(clients[i], root, "")
			for range each {
				n, err := c.Add(ctx, 1)
				if err != nil {
					return err
				}
				if _, twice := seen.LoadOrStore(n, true); twice {
					return fmt.Errorf("%d was handed out twice", n)
				}
				resp, err := clients[i].Get(ctx, root+"-increment/reads")
				if err != nil || len(resp.Kvs) != 1 {
					return fmt.Errorf("%v, %w", resp, err)
				}
			}
			return nil
		})
		for name, want := range map[string]int{"": each * len(clients), "reads": each * len(clients), "untouched": 0} {
			n, err := recipes.NewCounter(e.cli, root, name).Value(ctx)
			require.NoError(t, err)
			require.EqualValues(t, want, n, name)
		}
		_, err := recipes.NewCounter(e.cli, root, "").Add(ctx, 1<<62)
		require.NoError(t, err)
		_, err = recipes.NewCounter(e.cli, root, "").Add(ctx, 1<<62)
		require.ErrorContains(t, err, "line", "an overflow")
	})
}

// Many clients of different names register the same at once: all of them can use it.
func TestRecipesRegisteredByMany(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		name, root := strings.Trim(e.root, "/")+"-many", e.root+"many"
		together(t, len(clients), func(i int) error {
			ctx := recipes.WithClient(e.ctx, fmt.Sprint("client ", i))
			for range 3 {
				if err := recipes.RegisterAt(ctx, clients[i], name, "counter", root); err != nil {
					return err
				}
				if _, err := recipes.NewCounter(clients[i], root, "").Add(ctx, 1); err != nil {
					return err
				}
			}
			return nil
		})
		stranger := recipes.WithClient(e.ctx, "stranger")
		_, err := recipes.NewCounter(e.cli, root, "").Add(stranger, 1)
		require.ErrorIs(t, err, recipes.ErrUnhandled)
		n, err := recipes.NewCounter(e.cli, root, "").Value(stranger)
		require.NoError(t, err)
		require.EqualValues(t, 3*len(clients), n)
	})
}

func TestRecipeQueueHandsOutOnce(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("queue")
		const producers, each = 2, 30
		var left atomic.Int64
		left.Store(producers * each)
		consuming, stop := context.WithCancel(ctx)
		defer stop()
		var seen sync.Map
		together(t, len(clients), func(i int) error {
			q := recipes.NewQueue(clients[i], root)
			for n := 0; i < producers && n < each; n++ {
				if _, err := q.Add(ctx, fmt.Sprint(i, ":", n)); err != nil {
					return err
				}
			}
			for i >= producers {
				task, err := q.Take(consuming, fmt.Sprint("consumer", i), 0)
				if errors.Is(err, context.Canceled) && left.Load() == 0 {
					return nil
				}
				if err != nil {
					return err
				}
				if _, twice := seen.LoadOrStore(task.Element, i); twice {
					return fmt.Errorf("%s was handed out twice", task.Element)
				}
				if err := task.Done(ctx); err != nil {
					return err
				}
				if left.Add(-1) == 0 {
					stop()
				}
			}
			return nil
		})
		require.Zero(t, left.Load())
		require.Eventually(t, func() bool { return e.get(root, clientv3.WithPrefix()).Count == 0 }, 5*time.Second, 20*time.Millisecond,
			"nothing is left behind")
	})
}

func TestRecipeQueueServesInTurn(t *testing.T) {
	extended(t, 3, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("queue")
		q := recipes.NewQueue(e.cli, root)
		got := make(chan string)
		take := func(i int, lease clientv3.LeaseID) {
			id := fmt.Sprint("c", i)
			go func() {
				task, err := recipes.NewQueue(clients[i], root).Take(ctx, id, lease)
				if err != nil {
					got <- err.Error()
					return
				}
				got <- id + " " + task.Element
			}()
			e.exists(root + "waiting/" + id)
		}
		failing := e.session(60)
		for i, lease := range []clientv3.LeaseID{0, failing, 0} {
			take(i, lease)
		}
		n, err := q.Add(ctx, "one")
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, "c0 one", <-got)
		_, err = q.Add(ctx, "two")
		require.NoError(t, err)
		require.Equal(t, "c1 two", <-got)

		// With its lease the second consumer fails: its element is the third's.
		_, err = e.cli.Revoke(ctx, failing)
		require.NoError(t, err)
		require.Equal(t, "c2 two", <-got)

		// Whoever gives up waits no longer, and what comes back is at the front.
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = q.Take(waiting, "impatient", 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for i, element := range []string{"three", "four"} {
			n, err = q.Add(ctx, element)
			require.NoError(t, err)
			require.EqualValues(t, i+1, n)
		}
		task, err := q.Take(ctx, "other", 0)
		require.NoError(t, err)
		require.Equal(t, "three", task.Element)
		again, err := q.Take(ctx, "other", 0)
		require.NoError(t, err)
		require.Equal(t, "three", again.Element, "until it is done with it")
		require.NoError(t, task.Return(ctx))
		require.ErrorIs(t, again.Done(ctx), recipes.ErrNotYours)
		for _, want := range []string{"three", "four"} {
			element, err := q.Remove(ctx)
			require.NoError(t, err)
			require.Equal(t, want, element)
		}
		_, err = q.Remove(ctx)
		require.ErrorIs(t, err, recipes.ErrEmpty)
	})
}

func TestRecipeBarrier(t *testing.T) {
	extended(t, 5, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("barrier")
		n := len(clients)
		require.ErrorContains(t, recipes.NewBarrier(e.cli, root).Enter(ctx, "a", 0), "threshold")
		require.NoError(t, recipes.NewBarrier(e.cli, root).SetThreshold(ctx, n))
		const rounds = 4
		var came, gone [rounds]atomic.Int64
		together(t, n, func(i int) error {
			b := recipes.NewBarrier(clients[i], root)
			for r := range rounds {
				time.Sleep(time.Duration(i*(r%2)) * 5 * time.Millisecond)
				came[r].Add(1)
				if err := b.Enter(ctx, fmt.Sprint("p", i), 0); err != nil {
					return err
				}
				if here := came[r].Load(); here != int64(n) {
					return fmt.Errorf("round %d: open with %d of %d", r, here, n)
				}
				gone[r].Add(1)
				if err := b.Leave(ctx, fmt.Sprint("p", i)); err != nil {
					return err
				}
				if left := gone[r].Load(); left != int64(n) {
					return fmt.Errorf("round %d: left with %d of %d gone", r, left, n)
				}
			}
			return nil
		})
	})
}

// A participant counts as long as its lease lasts, and as long as it waits.
func TestRecipeBarrierWithoutTheDead(t *testing.T) {
	extended(t, 3, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("barrier")
		b := recipes.NewBarrier(e.cli, root)
		require.NoError(t, b.SetThreshold(ctx, 2))
		impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Enter(impatient, "impatient", 0), context.DeadlineExceeded)

		dead, through := e.session(60), make(chan error, 3)
		ending, stop := context.WithCancel(ctx)
		defer stop()
		go recipes.NewBarrier(clients[0], root).Enter(ending, "dead", dead)
		e.exists(root + "here/dead")
		_, err := e.cli.Revoke(ctx, dead)
		require.NoError(t, err)
		go func() { through <- recipes.NewBarrier(clients[1], root).Enter(ctx, "a", 0) }()
		e.exists(root + "here/a")
		select {
		case err := <-through:
			require.FailNow(t, "open for one", "%v", err)
		case <-time.After(100 * time.Millisecond):
		}
		lease := e.session(60)
		require.NoError(t, recipes.NewBarrier(clients[2], root).Enter(ctx, "b", lease))
		require.NoError(t, <-through)

		// Who waits for the others to leave doesn't wait for the dead.
		go func() { through <- recipes.NewBarrier(clients[1], root).Leave(ctx, "a") }()
		require.Eventually(t, func() bool { return len(e.get(root+"here/a").Kvs) == 0 }, 10*time.Second, 5*time.Millisecond)
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		require.NoError(t, <-through)
		require.Empty(t, e.get(root+"ready").Kvs)
	})
}

func TestRecipeElectionHasOneLeader(t *testing.T) {
	extended(t, 5, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("election")
		var leading, last atomic.Int64
		together(t, len(clients), func(i int) error {
			candidate := recipes.NewElection(clients[i], root, fmt.Sprint("n", i), e.session(60))
			for range 8 {
				l, err := candidate.Campaign(ctx)
				if err != nil {
					return err
				}
				if n := leading.Add(1); n != 1 {
					return fmt.Errorf("%d leaders", n)
				}
				if before := last.Swap(l.Revision); l.Revision <= before {
					return fmt.Errorf("a leader of revision %d after one of %d", l.Revision, before)
				}
				leading.Add(-1)
				if err := l.Resign(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		_, err := recipes.NewElection(e.cli, root, "x", 1).Leader(ctx)
		require.ErrorIs(t, err, recipes.ErrNoLeader)
	})
}

func TestRecipeElectionHandsOver(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("election")
		type won struct {
			name string
			l    *recipes.Leadership
		}
		wins := make(chan won, len(clients))
		campaign := func(i int, lease clientv3.LeaseID) {
			name := fmt.Sprint("n", i)
			go func() {
				if l, err := recipes.NewElection(clients[i], root, name, lease).Campaign(ctx); err == nil {
					wins <- won{name, l}
				}
			}()
			e.exists(fmt.Sprintf("%scandidates/%s-%x", root, name, int64(lease)))
		}
		leases := []clientv3.LeaseID{e.session(60), e.session(60), e.session(1), e.session(60)}
		for i := range clients {
			if i != 2 {
				campaign(i, leases[i])
			}
		}
		first := <-wins
		require.Equal(t, "n0", first.name)
		leader, err := recipes.NewElection(e.cli, root, "x", 1).Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, "n0", leader)

		_, err = e.cli.Revoke(ctx, leases[0])
		require.NoError(t, err)
		<-first.l.Lost()
		second := <-wins
		require.Equal(t, "n1", second.name)
		require.Greater(t, second.l.Revision, first.l.Revision)

		// One that leads and whose lease nobody keeps alive.
		require.NoError(t, second.l.Resign(ctx))
		third := <-wins
		require.Equal(t, "n3", third.name)
		short := e.session(1)
		campaign(2, short)
		campaign(1, leases[1])
		require.NoError(t, third.l.Resign(ctx))
		fourth := <-wins
		require.Equal(t, "n2", fourth.name)
		<-fourth.l.Lost()
		require.Equal(t, "n1", (<-wins).name)
	})
}

func TestRecipeSemaphore(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("semaphore")
		s := recipes.NewSemaphore(e.cli, root, "s")
		_, err := s.Acquire(ctx, "a", 0)
		require.ErrorContains(t, err, "limit/s")
		require.NoError(t, s.SetLimit(ctx, 2))
		var inside, most atomic.Int64
		together(t, len(clients), func(i int) error {
			s, id := recipes.NewSemaphore(clients[i], root, "s"), fmt.Sprint("c", i)
			for range 6 {
				if _, err := s.Acquire(ctx, id, 0); err != nil {
					return err
				}
				n := inside.Add(1)
				if n > 2 {
					return fmt.Errorf("%d inside", n)
				}
				if m := most.Load(); n > m {
					most.CompareAndSwap(m, n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := s.Release(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
		require.EqualValues(t, 2, most.Load())

		// A lease that ends, a limit that grows, a wait that is given up.
		lease, got := e.session(60), make(chan error, 2)
		for _, id := range []string{"x", "y"} {
			ok, err := s.TryAcquire(ctx, id, lease)
			require.NoError(t, err)
			require.True(t, ok)
		}
		ok, err := s.TryAcquire(ctx, "z", 0)
		require.NoError(t, err)
		require.False(t, ok)
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = s.Acquire(waiting, "impatient", 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		acquire := func(id string) {
			go func() {
				_, err := s.Acquire(ctx, id, 0)
				got <- err
			}()
			e.exists(root + "waiting/s/" + id)
		}
		acquire("z")
		require.NoError(t, s.SetLimit(ctx, 3))
		require.NoError(t, <-got)
		acquire("w")
		acquire("v")
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		require.NoError(t, <-got)
		require.NoError(t, <-got)
		require.ErrorIs(t, s.Release(ctx, "x"), recipes.ErrNotYours)
	})
}

func TestRecipeRateLimiter(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("ratelimit")
		require.NoError(t, recipes.NewRateLimiter(e.cli, root, "r", 24*time.Hour).SetLimit(ctx, 50))
		var granted atomic.Int64
		together(t, len(clients), func(i int) error {
			r := recipes.NewRateLimiter(clients[i], root, "r", 24*365*time.Hour)
			for range 20 {
				_, ok, err := r.Take(ctx, 1)
				if err != nil {
					return err
				}
				if ok {
					granted.Add(1)
				}
			}
			return nil
		})
		require.EqualValues(t, 50, granted.Load())
	})
}

// A watcher sees a rename whole, and so does every read.
func TestRecipeRenameIsAtomic(t *testing.T) {
	extended(t, 1, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("rename")
		const files, moves = 40, 12
		var rev int64
		for i := range files {
			rev = e.put(fmt.Sprintf("%s/d0/f%02d", root, i), fmt.Sprint(i))
		}
		watch := e.cli.Watch(ctx, root+"/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		reading, stop := context.WithCancel(ctx)
		read := make(chan error, 1)
		go func() {
			for reading.Err() == nil {
				resp, err := clients[0].Get(ctx, root+"/", clientv3.WithPrefix())
				if err == nil && resp.Count != files {
					err = fmt.Errorf("%d files", resp.Count)
				}
				if err != nil {
					read <- err
					return
				}
			}
			read <- nil
		}()
		tree := recipes.NewTree(e.cli, root)
		for i := range moves {
			n, err := tree.Rename(ctx, fmt.Sprint("d", i), fmt.Sprint("d", i+1))
			require.NoError(t, err)
			require.EqualValues(t, files, n)
		}
		stop()
		require.NoError(t, <-read)

		atRevision, total := map[int64]int{}, 0
		for total < 2*files*moves {
			resp := <-watch
			require.NoError(t, resp.Err())
			for _, ev := range resp.Events {
				atRevision[ev.Kv.ModRevision]++
				total++
			}
		}
		require.Len(t, atRevision, moves)
		for rev, n := range atRevision {
			require.Equal(t, 2*files, n, "revision %d", rev)
		}
		for old, new := range map[string]string{"none": "x", "d12": "d12/below", "d12/": "x", "d12/f00": "d12/f01"} {
			_, err := tree.Rename(ctx, old, new)
			require.Equal(t, old == "d12/f00", err == nil, "%s to %s: %v", old, new, err)
		}
		e.put(root+"/other/f", "x")
		_, err := tree.Rename(ctx, "d12", "other")
		require.ErrorContains(t, err, "exists")
		require.EqualValues(t, files, e.get(root+"/", clientv3.WithPrefix()).Count)
	})
}

func TestRecipeBalancer(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("balancer")
		b := recipes.NewBalancer(e.cli, root, "web")
		_, err := b.Next(ctx)
		require.ErrorIs(t, err, recipes.ErrNoServer)
		lease := e.session(60)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, b.Join(ctx, recipes.Server{Name: name, Address: name + ":80"}, lease))
		}
		var picked sync.Map
		together(t, len(clients), func(i int) error {
			for range 15 {
				s, err := recipes.NewBalancer(clients[i], root, "web").Next(ctx)
				if err != nil {
					return err
				}
				n, _ := picked.LoadOrStore(s, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
			}
			return nil
		})
		for _, name := range []string{"a", "b", "c"} {
			n, ok := picked.Load(recipes.Server{Name: name, Address: name + ":80"})
			require.True(t, ok)
			require.EqualValues(t, 20, n.(*atomic.Int64).Load())
		}
		require.NoError(t, b.Leave(ctx, "a"))
		require.NoError(t, b.Join(ctx, recipes.Server{Name: "bb"}, 0))
		for _, want := range []string{"b", "bb", "c", "b"} {
			s, err := b.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, want, s.Name)
		}
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		s, err := b.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "bb", s.Name)
	})
}

func TestRecipeTupleSpace(t *testing.T) {
	extended(t, 4, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.recipe("tuplespace")
		type tuple = recipes.Tuple
		s := recipes.NewTupleSpace(e.cli, root)
		require.NoError(t, s.Out(ctx, tuple{"job", "1"}, 0))
		require.NoError(t, s.Out(ctx, tuple{"job", "2"}, 0))
		require.NoError(t, s.Out(ctx, tuple{"job", "2"}, 0))
		odd := tuple{"a,b/c*%2C", "", "*", "\x00\xff"}
		require.NoError(t, s.Out(ctx, odd, 0))

		all, err := s.RdAll(ctx, tuple{"job", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, []tuple{{"job", "1"}, {"job", "2"}, {"job", "2"}}, all, "a space holds equal tuples")
		all, err = s.RdAll(ctx, tuple{recipes.Any, "2"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		got, err := s.Rdp(ctx, tuple{recipes.Any, recipes.Any, "*", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, odd, got)
		_, err = s.Rdp(ctx, tuple{"job"})
		require.ErrorIs(t, err, recipes.ErrNoMatch, "as many fields")
		got, err = s.Rd(ctx, tuple{"job", "1"})
		require.NoError(t, err)
		require.Equal(t, tuple{"job", "1"}, got)

		got, err = s.Replace(ctx, tuple{"job", "1"}, tuple{"job", "3"})
		require.NoError(t, err)
		require.Equal(t, tuple{"job", "1"}, got)
		_, err = s.Replace(ctx, tuple{"job", "1"}, tuple{"job", "4"})
		require.ErrorIs(t, err, recipes.ErrNoMatch)
		all, err = s.RdAll(ctx, tuple{"job", recipes.Any})
		require.NoError(t, err)
		require.Equal(t, []tuple{{"job", "2"}, {"job", "2"}, {"job", "3"}}, all)

		// Of several that want the same, one gets it.
		var won, taken atomic.Int64
		together(t, len(clients), func(i int) error {
			s := recipes.NewTupleSpace(clients[i], root)
			ok, err := s.Cas(ctx, tuple{"lock", recipes.Any}, tuple{"lock", fmt.Sprint(i)})
			if err == nil && ok {
				won.Add(1)
			}
			if err == nil {
				if _, err = s.Inp(ctx, tuple{"job", recipes.Any}); err == nil {
					taken.Add(1)
				}
			}
			if errors.Is(err, recipes.ErrNoMatch) {
				err = nil
			}
			return err
		})
		require.EqualValues(t, 1, won.Load())
		require.EqualValues(t, 3, taken.Load())

		// All that wait for a tuple read it when it comes; it goes with its lease.
		read := make(chan string, len(clients))
		for i := range clients {
			go func() {
				got, err := recipes.NewTupleSpace(clients[i], root).Rd(ctx, tuple{"event", recipes.Any})
				read <- fmt.Sprint(got, err)
			}()
		}
		e.exists(root + "waiting/event,*")
		time.Sleep(50 * time.Millisecond)
		lease := e.session(60)
		require.NoError(t, s.Out(ctx, tuple{"event", "x"}, lease))
		for range clients {
			require.Equal(t, "[event x] <nil>", <-read)
		}
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		_, err = s.Rdp(ctx, tuple{"event", recipes.Any})
		require.ErrorIs(t, err, recipes.ErrNoMatch)
	})
}
