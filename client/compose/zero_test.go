package compose_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// Zero values return errors: no method panics, or waits for ever.
func TestZeroValues(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	fails := func(err error) { t.Helper(); require.ErrorContains(t, err, "compose.New") }
	var session compose.Session
	for _, c := range []*compose.Client{{}, session.Client, new(compose.Client).Fork(), new(compose.Client).Synced()} {
		_, err := c.Put(ctx, "k", "v", client.Ephemeral())
		fails(err)
		_, err = c.PutAsync("k", "v").Wait(ctx)
		fails(err)
		_, err = c.Get(ctx, "k")
		fails(err)
		_, err = c.GetAsync("k", clientv3.WithPrefix()).Wait(ctx)
		fails(err)
		_, err = c.GetStream(ctx, "k")
		fails(err)
		_, err = c.Delete(ctx, "k")
		fails(err)
		_, err = c.DeleteAsync("k").Wait(ctx)
		fails(err)
		_, err = c.Do(ctx, clientv3.OpGet("k"))
		fails(err)
		_, err = c.DoAsync(clientv3.OpGet("k")).Wait(ctx)
		fails(err)
		_, err = c.Txn(ctx).Then(clientv3.OpPut("k", "v")).Commit()
		fails(err)
		_, err = c.TxnAsync(nil, nil, nil).Wait(ctx)
		fails(err)
		_, err = c.Compact(ctx, 1)
		require.Error(t, err)
		refused := <-c.Watch(ctx, "k")
		fails(refused.Err())
		fails(c.RequestProgress(ctx))
		_, err = c.Grant(ctx, 5)
		fails(err)
		_, err = c.Revoke(ctx, 5)
		fails(err)
		_, err = c.TimeToLive(ctx, 5)
		fails(err)
		_, err = c.Leases(ctx)
		fails(err)
		_, err = c.KeepAlive(ctx, 5)
		fails(err)
		_, err = c.KeepAliveOnce(ctx, 5)
		fails(err)
		_, err = c.Session(ctx)
		fails(err)
		_, _, err = c.Route("k")
		fails(err)
		fails(c.Sync(ctx, "a"))
		require.Zero(t, c.Stats())
		_, err = c.Etcd().Get(ctx, "k")
		fails(err)
		f := c.NewFeed()
		_, err = f.Watch(ctx, "k")
		fails(err)
		f.Close()
		require.NoError(t, c.Close())
	}
	fails(session.Err())
	<-session.Done()
	fails(session.Close(ctx))
	require.Zero(t, session.ID())
	require.Zero(t, session.TTL())

	var f compose.Feed
	_, err := f.Watch(ctx, "k")
	fails(err)
	_, err = f.Next(ctx)
	require.ErrorIs(t, err, compose.ErrFeedClosed)
	f.Close()
	var w compose.FeedWatch
	require.Empty(t, w.Cluster())
	w.Close()
	require.NotEmpty(t, (&compose.ClusterError{}).Error())
}

func TestSettingsAreChecked(t *testing.T) {
	good := func() compose.Config {
		return compose.Config{
			Clusters: map[string]compose.Cluster{"a": {Endpoints: []string{"127.0.0.1:1"}}},
			Routes:   []compose.Route{{Cluster: "a"}},
		}
	}
	for text, change := range map[string]func(*compose.Config){
		"clusters":               func(c *compose.Config) { c.Clusters = nil },
		"routes":                 func(c *compose.Config) { c.Routes = nil },
		"there are no endpoints": func(c *compose.Config) { c.Clusters["a"] = compose.Cluster{} },
		"an endpoint is":         func(c *compose.Config) { c.Clusters["a"] = compose.Cluster{Endpoints: []string{"x", ""}} },
		"Near": func(c *compose.Config) {
			c.Clusters["a"] = compose.Cluster{Endpoints: []string{"x"}, Near: []string{""}}
		},
		"Kind(7)":            func(c *compose.Config) { c.Clusters["a"] = compose.Cluster{Endpoints: []string{"x"}, Kind: 7} },
		"none of the":        func(c *compose.Config) { c.Routes[0].Cluster = "b" },
		"Timeout of -1s":     func(c *compose.Config) { c.Timeout = -time.Second },
		"DialTimeout of -1s": func(c *compose.Config) { c.DialTimeout = -time.Second },
		"Pending of -1":      func(c *compose.Config) { c.Pending = -1 },
		"ClientID \"\\x00\"": func(c *compose.Config) { c.ClientID = "\x00" },
	} {
		cfg := good()
		change(&cfg)
		_, err := compose.New(cfg)
		require.ErrorContains(t, err, text)
	}
	c, err := compose.New(good())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Session(t.Context(), compose.WithTTL(100*time.Millisecond))
	require.ErrorContains(t, err, "TTL of 100ms")
	_, err = c.Session(t.Context(), compose.WithClusters("b"))
	require.ErrorContains(t, err, `no cluster "b"`)
}
