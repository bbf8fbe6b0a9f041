package compat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
	"github.com/stoa-kv/stoa/test/process"
)

// Waiting calls keep waiting when their server is killed: the client's watch is
// opened again, on another server, and is the same call. Each gets its result
// once.
func TestRecipesWaitThroughAFailure(t *testing.T) {
	needExtensions(t)
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	e := newEnv(t, shape{3, 2}, c)
	ctx := e.ctx
	victim := c.Servers[e.leader()]
	waiter := e.named("tester", victim.ClientURL)
	others := e.named("tester", e.without(victim)...)
	require.NoError(t, recipes.Register(ctx, others, "queue", "barrier", "election", "semaphore", "tuplespace"))
	lease := e.session(60)

	answers := make(chan string)
	wait := func(key string, f func(cli *clientv3.Client) (string, error)) {
		go func() {
			got, err := f(waiter)
			answers <- fmt.Sprint(got, " ", err)
		}()
		e.exists(key)
	}
	require.NoError(t, recipes.NewBarrier(others, "").SetThreshold(ctx, 2))
	lock := recipes.NewSemaphore(others, "", "lock")
	require.NoError(t, lock.SetLimit(ctx, 1))
	_, err := lock.Acquire(ctx, "other", 0)
	require.NoError(t, err)
	leader, err := recipes.NewElection(others, "", "other", e.session(60)).Campaign(ctx)
	require.NoError(t, err)

	wait("/queue/waiting/w", func(cli *clientv3.Client) (string, error) {
		task, err := recipes.NewQueue(cli, "").Take(ctx, "w", lease)
		if err != nil {
			return "", err
		}
		return task.Element, task.Done(ctx)
	})
	wait("/barrier/here/w", func(cli *clientv3.Client) (string, error) {
		return "barrier", recipes.NewBarrier(cli, "").Enter(ctx, "w", lease)
	})
	wait(fmt.Sprintf("/election/candidates/w-%x", int64(lease)), func(cli *clientv3.Client) (string, error) {
		_, err := recipes.NewElection(cli, "", "w", lease).Campaign(ctx)
		return "election", err
	})
	wait("/semaphore/waiting/lock/w", func(cli *clientv3.Client) (string, error) {
		_, err := recipes.NewSemaphore(cli, "", "lock").Acquire(ctx, "w", lease)
		return "lock", err
	})
	wait("/space/waiting/tuple,*", func(cli *clientv3.Client) (string, error) {
		tuple, err := recipes.NewTupleSpace(cli, "").Rd(ctx, recipes.Tuple{"tuple", recipes.Any})
		return fmt.Sprint(tuple), err
	})

	waiter.SetEndpoints(e.Endpoints()...) // the streams that it has stay where they are
	require.NoError(t, victim.Kill())
	// Some of it happens while the client is between two servers.
	retry(ctx, t, func() error { // repeated until there is a leader again
		_, err := others.Put(ctx, "any", "")
		return err
	})
	_, err = recipes.NewQueue(others, "").Add(ctx, "element")
	require.NoError(t, err)
	require.NoError(t, recipes.NewTupleSpace(others, "").Out(ctx, recipes.Tuple{"tuple", "x"}, 0))
	require.NoError(t, recipes.NewBarrier(others, "").Enter(ctx, "other", 0))
	require.NoError(t, lock.Release(ctx, "other"))
	require.NoError(t, leader.Resign(ctx))

	want := map[string]bool{"element <nil>": true, "barrier <nil>": true, "election <nil>": true, "lock <nil>": true, "[tuple x] <nil>": true}
	for len(want) > 0 {
		got := <-answers
		require.True(t, want[got], "%s", got)
		delete(want, got)
	}
	n, err := recipes.NewQueue(others, "").Length(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	resp, err := others.Get(ctx, "/queue/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, keysOf(resp))
}

func (e *env) without(victim *process.Server) []string {
	var urls []string
	for _, s := range e.Servers {
		if s != victim {
			urls = append(urls, s.ClientURL)
		}
	}
	return urls
}

// retry repeats requests that a cluster without a leader refuses.
func retry(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	for {
		err := f()
		if err == nil {
			return
		}
		require.NoError(t, ctx.Err(), "%v", err)
		time.Sleep(50 * time.Millisecond)
	}
}
