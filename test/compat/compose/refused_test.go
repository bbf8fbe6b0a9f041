package compose

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// soon bounds the time until a request to a cluster that refuses connections
// fails: long before Config.Timeout, which is 3 s here.
const soon = 2 * time.Second

// failsSoon requires an error that names the cluster us, almost at once.
func failsSoon(t *testing.T, what string, call func() error) *compose.ClusterError {
	t.Helper()
	began := time.Now()
	err := call()
	took := time.Since(began)
	var in *compose.ClusterError
	require.ErrorAs(t, err, &in, what)
	require.Equal(t, "us", in.Cluster, what)
	require.Less(t, took, soon, "%s: %v", what, err)
	t.Logf("%s fails after %v: %v", what, took.Round(time.Millisecond), err)
	return in
}

// never requires an error with a known outcome.
func never(t *testing.T, what string, call func() error) {
	t.Helper()
	require.False(t, failsSoon(t, what, call).Unknown, "%s was never sent, so it has no effect for certain", what)
}

// some does an update and a read.
func some(t *testing.T, ctx context.Context, c *compose.Client, value string) {
	t.Helper()
	never(t, "put", func() error { _, err := c.Put(ctx, "/us/a", value); return err })
	never(t, "get", func() error { _, err := c.Get(ctx, "/us/a"); return err })
}

// everything does requests of all kinds to the cluster that refuses connections.
func everything(t *testing.T, ctx context.Context, c *compose.Client, value string) {
	t.Helper()
	some(t, ctx, c, value)
	never(t, "range", func() error { _, err := c.Get(ctx, "/us/", clientv3.WithPrefix()); return err })
	never(t, "delete", func() error { _, err := c.Delete(ctx, "/us/a"); return err })
	never(t, "txn", func() error { _, err := c.Txn(ctx).Then(clientv3.OpPut("/us/a", value)).Commit(); return err })
	never(t, "sync", func() error { return c.Sync(ctx, "us") })
	var puts []*client.Future[*clientv3.PutResponse]
	for i := range 20 {
		puts = append(puts, c.PutAsync("/us/a", fmt.Sprint(value, i)))
	}
	behind := c.PutAsync("/eu/a", value)
	for _, f := range puts {
		never(t, "async put", func() error { _, err := f.Wait(ctx); return err })
	}
	_, err := behind.Wait(ctx)
	require.NoError(t, err, "the other cluster has nothing to do with it")
}

// TestRefused kills a cluster: all requests to it fail at once, and unsent ones
// with that reason.
func TestRefused(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		e.put("/eu/a", "before")
		e.put("/us/a", "before")
		require.NoError(t, e.us.Servers[0].Kill())
		// The first to fail may have been in flight.
		failsSoon(t, "first put", func() error { _, err := e.Put(e.ctx, "/us/first", ""); return err })
		everything(t, e.ctx, e.Client, "late")
		everything(t, e.ctx, e.client(), "late") // never was connected

		require.NoError(t, e.us.Restart(e.ctx, e.us.Servers[0]))
		require.Eventually(t, func() bool {
			got, err := e.Get(e.ctx, "/us/a")
			return err == nil && string(got.Kvs[0].Value) == "before"
		}, 10*time.Second, 50*time.Millisecond, "what was never sent has no effect")
		e.put("/us/a", "after")
	})
}

// TestRefusedByAll is the same with three members, first one of them and then all.
func TestRefusedByAll(t *testing.T) {
	pairs(t, 3, func(t *testing.T, e *env) {
		e.put("/us/a", "before")
		require.NoError(t, e.us.Servers[0].Kill())
		require.Eventually(t, func() bool {
			_, err := e.Put(e.ctx, "/us/a", "before")
			return err == nil
		}, 15*time.Second, 50*time.Millisecond, "the others serve")
		for _, s := range e.us.Servers[1:] {
			require.NoError(t, s.Kill())
		}
		failsSoon(t, "first get", func() error { _, err := e.Get(e.ctx, "/us/a"); return err })
		some(t, e.ctx, e.Client, "late")
		some(t, e.ctx, e.client(), "late")
	})
}

// TestUnknownName has a cluster whose members' names can't be resolved.
func TestUnknownName(t *testing.T) {
	t.Parallel()
	for _, kind := range []compose.Kind{compose.Auto, compose.Stoa, compose.Etcd} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			eu := start(t, "stoa", 1)
			c, err := compose.New(compose.Config{
				Clusters: map[string]compose.Cluster{
					"eu": {Endpoints: eu.Endpoints()}, "us": {Endpoints: []string{"http://nobody.invalid:2379", "http://noone.invalid:2379"}, Kind: kind},
				},
				Routes: []compose.Route{{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/us", Cluster: "us", Strip: true}},
			})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			some(t, t.Context(), c, "")
		})
	}
}
