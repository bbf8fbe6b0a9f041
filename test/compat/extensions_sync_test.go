package compat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

func TestRecipeQueueHandsOutOnce(t *testing.T) {
	extended(t, 6, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("queue")
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
		require.Eventually(t, func() bool { return e.get(root, clientv3.WithPrefix()).Count == 0 }, time.Minute, 20*time.Millisecond,
			"nothing is left behind")
	})
}

func TestRecipeQueueServesInTurn(t *testing.T) {
	extended(t, 3, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("queue")
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

		// A cancelled call waits no longer, and a returned element is at the
		// front.
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = q.Take(waiting, "timed-out", 0)
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
		ctx, root := e.ctx, e.recipe("barrier")
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
func TestRecipeBarrierWithoutFailedMembers(t *testing.T) {
	extended(t, 3, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("barrier")
		b := recipes.NewBarrier(e.cli, root)
		require.NoError(t, b.SetThreshold(ctx, 2))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Enter(short, "timed-out", 0), context.DeadlineExceeded)

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

		// Leave doesn't wait for participants whose lease has ended.
		go func() { through <- recipes.NewBarrier(clients[1], root).Leave(ctx, "a") }()
		require.Eventually(t, func() bool { return len(e.get(root+"here/a").Kvs) == 0 }, time.Minute, 5*time.Millisecond)
		_, err = e.cli.Revoke(ctx, lease)
		require.NoError(t, err)
		require.NoError(t, <-through)
		require.Empty(t, e.get(root+"ready").Kvs)
	})
}

func TestRecipeElectionHasOneLeader(t *testing.T) {
	extended(t, 5, func(t *testing.T, e *env, clients []*clientv3.Client) {
		ctx, root := e.ctx, e.recipe("election")
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
		ctx, root := e.ctx, e.recipe("election")
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
		leases := []clientv3.LeaseID{e.session(60), e.session(60), 0, e.session(60)}
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

		// A leader whose lease is not kept alive.
		require.NoError(t, second.l.Resign(ctx))
		third := <-wins
		require.Equal(t, "n3", third.name)
		short := e.session(5) // as long as a loaded machine may need until it leads
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
		ctx, root := e.ctx, e.recipe("semaphore")
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
		_, err = s.Acquire(waiting, "timed-out", 0)
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
