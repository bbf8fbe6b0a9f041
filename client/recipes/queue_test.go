package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/recipes"
)

// A consumer that ends an element which it has lost, for its lease has ended, does nothing to the one that it has since, nor to
// its place in the line.
func TestElementThatWasLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const root = "/lostelement/"
	require.NoError(t, recipes.RegisterAt(ctx, cli, "lostelement", "queue", root))
	q := recipes.NewQueue(cli, root)
	add := func(element string) {
		_, err := q.Add(ctx, element)
		require.NoError(t, err)
	}
	take := func(id string, lease clientv3.LeaseID, want string) *recipes.Task {
		task, err := q.Take(ctx, id, lease)
		require.NoError(t, err)
		require.Equal(t, want, task.Element)
		return task
	}
	notYours := func(lost *recipes.Task) {
		t.Helper()
		require.ErrorIs(t, lost.Done(ctx), recipes.ErrNotYours)
		require.ErrorIs(t, lost.Return(ctx), recipes.ErrNotYours)
	}
	add("x")
	lease := grant(ctx)
	lost := take("a", lease, "x")
	_, err := cli.Revoke(ctx, lease)
	require.NoError(t, err)
	notYours(lost)
	others := take("b", grant(ctx), "x")

	add("y")
	lease = grant(ctx)
	has := take("a", lease, "y")
	notYours(lost)
	require.NoError(t, has.Return(ctx))
	has = take("a", lease, "y")
	require.NoError(t, has.Done(ctx))
	require.ErrorIs(t, has.Done(ctx), recipes.ErrNotYours)

	next := make(chan *recipes.Task)
	go func() { next <- take("a", lease, "z") }()
	require.Eventually(t, func() bool {
		resp, err := cli.Get(ctx, root+"waiting/a")
		return err == nil && len(resp.Kvs) == 1
	}, 10*time.Second, 10*time.Millisecond)
	notYours(lost)
	add("z")
	require.NoError(t, (<-next).Done(ctx))
	require.NoError(t, others.Done(ctx))
}
