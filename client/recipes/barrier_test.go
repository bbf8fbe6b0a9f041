package recipes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/recipes"
)

// deaf is a client that gets no events of the calls that enter a barrier.
type deaf struct{ *client.Client }

func (d deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	ch := d.Client.Watch(ctx, key, opts...)
	if strings.Contains(key, "/enter/") {
		return make(chan clientv3.WatchResponse)
	}
	return ch
}

// Whoever leaves a barrier waits for nobody who has given up: whose wait for the others ended just as they had come.
func TestBarrierOfOneThatGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const root = "/givenup/"
	require.NoError(t, recipes.RegisterAt(ctx, cli, "givenup", "barrier", root))
	b := recipes.NewBarrier(cli, root)
	require.NoError(t, b.SetThreshold(ctx, 2))
	giving, up := context.WithCancel(ctx)
	defer up()
	left := make(chan error, 1)
	go func() {
		err := b.Enter(ctx, "a", 0)
		up()
		if err == nil {
			err = b.Leave(ctx, "a")
		}
		left <- err
	}()
	require.ErrorIs(t, recipes.NewBarrier(deaf{cli}, root).Enter(giving, "b", 0), context.Canceled)
	require.NoError(t, <-left)
	resp, err := cli.Get(ctx, root+"ready")
	require.NoError(t, err)
	require.Empty(t, resp.Kvs, "it can be used again")
}
