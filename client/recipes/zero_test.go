package recipes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

// Zero values, and recipes that were made without a client, say so.
func TestZeroValues(t *testing.T) {
	ctx := t.Context()
	fails := func(err error) { t.Helper(); require.ErrorContains(t, err, "no client") }
	lease := clientv3.LeaseID(1)

	for _, c := range []*recipes.Counter{{}, recipes.NewCounter(nil, "", "n")} {
		_, err := c.Add(ctx, 1)
		fails(err)
		_, err = c.Value(ctx)
		fails(err)
	}
	for _, q := range []*recipes.Queue{{}, recipes.NewQueue(nil, "")} {
		_, err := q.Add(ctx, "e")
		fails(err)
		_, err = q.Length(ctx)
		fails(err)
		_, err = q.Remove(ctx)
		fails(err)
		_, err = q.Take(ctx, "id", lease)
		fails(err)
	}
	var task recipes.Task
	fails(task.Done(ctx))
	fails(task.Return(ctx))
	for _, b := range []*recipes.Barrier{{}, recipes.NewBarrier(nil, "")} {
		fails(b.SetThreshold(ctx, 1))
		fails(b.Enter(ctx, "id", lease))
		fails(b.Leave(ctx, "id"))
		fails(b.Close(ctx))
	}
	_, err := new(recipes.Election).Campaign(ctx)
	require.Error(t, err, "no lease")
	_, err = recipes.NewElection(nil, "", "id", lease).Campaign(ctx)
	fails(err)
	_, err = new(recipes.Election).Leader(ctx)
	fails(err)
	var l recipes.Leadership
	<-l.Lost()
	fails(l.Resign(ctx))
	for _, s := range []*recipes.Semaphore{recipes.NewSemaphore(nil, "", "s")} {
		fails(s.SetLimit(ctx, 1))
		_, err := s.TryAcquire(ctx, "id", lease)
		fails(err)
		_, err = s.Acquire(ctx, "id", lease)
		fails(err)
		fails(s.Release(ctx, "id"))
	}
	_, err = new(recipes.Semaphore).Acquire(ctx, "id", lease)
	require.Error(t, err, "no name")
	var r recipes.RateLimiter
	fails(r.SetLimit(ctx, 1))
	_, _, err = r.Take(ctx, 1)
	fails(err)
	_, err = new(recipes.Tree).Rename(ctx, "a", "b")
	fails(err)
	var b recipes.Balancer
	fails(b.Join(ctx, recipes.Server{}, lease))
	fails(b.Leave(ctx, "s"))
	_, err = b.Next(ctx)
	fails(err)
	var space recipes.TupleSpace
	one := recipes.Tuple{"a"}
	fails(space.Out(ctx, one, 0))
	for _, f := range []func() error{
		func() error { _, err := space.Rdp(ctx, one); return err },
		func() error { _, err := space.RdAll(ctx, one); return err },
		func() error { _, err := space.Rd(ctx, one); return err },
		func() error { _, err := space.Inp(ctx, one); return err },
		func() error { _, err := space.Cas(ctx, one, one); return err },
		func() error { _, err := space.Replace(ctx, one, one); return err },
	} {
		fails(f())
	}
	fails(recipes.Register(ctx, nil, "counter"))
}
