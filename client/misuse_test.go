package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

func TestSettingsAreChecked(t *testing.T) {
	f := newFake(t, 1)
	for text, change := range map[string]func(*client.Config){
		"TTL of 100ms":         func(c *client.Config) { c.TTL = 100 * time.Millisecond },
		"TTL of 1.5s":          func(c *client.Config) { c.TTL = 1500 * time.Millisecond },
		"TTL of -1s":           func(c *client.Config) { c.TTL = -time.Second },
		"Level(9)":             func(c *client.Config) { c.Level = 9 },
		"Pending of -1":        func(c *client.Config) { c.Pending = -1 },
		"MaxRequestBytes of -": func(c *client.Config) { c.MaxRequestBytes = -1 },
		"DialTimeout of -1ns":  func(c *client.Config) { c.DialTimeout = -1 },
		"ClientID \"\\x00\"":   func(c *client.Config) { c.ClientID = "\x00" },
	} {
		cfg := client.Config{Endpoints: f.endpoints()}
		change(&cfg)
		_, err := client.New(cfg)
		require.ErrorContains(t, err, text)
	}
	c := f.client()
	for text, option := range map[string]client.SessionOption{
		"TTL of 100ms":    client.WithTTL(100 * time.Millisecond),
		"TTL of 0s":       client.WithTTL(0),
		"TTL of 2.5s":     client.WithTTL(2500 * time.Millisecond),
		"Level(9)":        client.WithLevel(9),
		"token of -1":     client.WithToken(-1),
		"refusal of -1s":  client.WithRefusal(-time.Second),
		"an endpoint is ": client.WithEndpoints(f.endpoints()[0], ""),
	} {
		_, err := c.Session(testContext(t), option)
		require.ErrorContains(t, err, text)
	}
	s, err := c.Session(testContext(t), client.WithTTL(2*time.Second), client.SessionOption{})
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, s.TTL())
}

// An unknown level is refused where it would be used.
func TestUnknownLevel(t *testing.T) {
	f := newFake(t, 1)
	r := f.session().At(9)
	ctx := testContext(t)
	_, err := r.Get(ctx, "k")
	require.ErrorContains(t, err, "Level(9) is none of Strict, Causal and Fast")
	_, err = r.GetAsync("k", clientv3.WithPrefix()).Wait(ctx)
	require.ErrorContains(t, err, "Level(9)")
	_, err = r.Watch(ctx, "k")
	require.ErrorContains(t, err, "Level(9)")
	_, err = r.KV().Get(ctx, "k")
	require.ErrorContains(t, err, "Level(9)")
	b := r.Batch()
	b.Get("k")
	require.ErrorContains(t, b.Run(ctx), "Level(9)")
	_, err = r.At(client.Strict).Get(ctx, "k")
	require.NoError(t, err, "the session goes on")
}

// An ephemeral key without a session is refused before anything is sent.
func TestEphemeralOutsideASession(t *testing.T) {
	f := newFake(t, 1)
	c := f.client()
	ctx := testContext(t)
	put := clientv3.OpPut("k", "v", client.Ephemeral())
	_, err := c.Put(ctx, "k", "v", client.Ephemeral())
	require.ErrorIs(t, err, client.ErrNoSession)
	_, err = c.Do(ctx, put)
	require.ErrorIs(t, err, client.ErrNoSession)
	_, err = c.Txn(ctx).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{put})).Commit()
	require.ErrorIs(t, err, client.ErrNoSession)
	require.ErrorContains(t, err, "Ephemeral")
}

// Zero values, as they come from a struct that was not filled: every method
// returns, and errors say that there is no session or client.
func TestZeroValues(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	fails := func(err error) { t.Helper(); require.ErrorIs(t, err, client.ErrNoSession) }

	var s client.Session
	_, err := s.Put(ctx, "k", "v", client.Ephemeral())
	fails(err)
	_, err = s.PutAsync("k", "v").Wait(ctx)
	fails(err)
	_, err = s.Delete(ctx, "k", clientv3.WithPrefix())
	fails(err)
	_, err = s.DeleteAsync("k").Wait(ctx)
	fails(err)
	_, err = s.Sync(ctx)
	fails(err)
	_, err = s.SyncAsync().Wait(ctx)
	fails(err)
	_, err = s.Progress(ctx)
	fails(err)
	fails(s.Err())
	fails(s.Close(ctx))
	<-s.Done()
	require.Zero(t, s.ID())
	require.Zero(t, s.TTL())
	require.Zero(t, s.Token())
	require.Zero(t, s.Member())
	s.See(5)
	require.Zero(t, new(client.Session).Token(), "zero values have nothing in common")
	e := s.Etcd()
	_, err = e.Put(ctx, "k", "v")
	require.Error(t, err)
	_, err = e.Grant(ctx, 5)
	require.ErrorContains(t, err, "no session")
	_, err = e.MemberList(ctx)
	require.ErrorContains(t, err, "no session")
	refused := <-e.Watch(ctx, "k")
	require.ErrorContains(t, refused.Err(), "no session")
	_, err = s.Lease().TimeToLive(ctx, 1)
	require.Error(t, err)

	var r client.Reader
	for _, r := range []client.Reader{r, s.Reader, s.At(client.Causal)} {
		_, err = r.Get(ctx, "k")
		fails(err)
		_, err = r.GetAsync("k", clientv3.WithPrefix()).Wait(ctx)
		fails(err)
		_, err = r.Do(ctx, clientv3.OpGet("k"))
		fails(err)
		_, err = r.DoAsync(clientv3.OpPut("k", "v", client.Ephemeral())).Wait(ctx)
		fails(err)
		_, err = r.TxnAsync(nil, nil, nil).Wait(ctx)
		fails(err)
		_, err = r.Txn(ctx).Commit()
		require.ErrorContains(t, err, "no session")
		_, err = r.Watch(ctx, "k")
		fails(err)
		_, err = r.WatchAsync(new(client.Feed), "k").Wait(ctx)
		fails(err)
		refused := <-r.Watcher().Watch(ctx, "k")
		require.ErrorContains(t, refused.Err(), "no session")
		b := r.Batch(client.Independent(), client.BatchOption{})
		b.Put("k", "v")
		fails(b.Run(ctx))
	}

	var b client.Batch
	b.Put("k", "v")
	b.Get("k")
	b.Delete("k", clientv3.WithPrefix())
	b.Txn(nil, nil, nil)
	b.Do(clientv3.OpGet("k"))
	require.Equal(t, 5, b.Len())
	fails(b.Send(ctx))
	fails(new(client.Batch).Run(ctx))

	var w client.Watch
	_, err = w.Next(ctx)
	require.ErrorIs(t, err, client.ErrWatchClosed)
	_, ok := w.TryNext()
	require.False(t, ok)
	_, ok = <-w.Chan()
	require.False(t, ok)
	require.ErrorIs(t, w.Err(), client.ErrWatchClosed)
	w.Close()

	var f client.Feed
	_, err = f.Next(ctx)
	require.ErrorIs(t, err, client.ErrWatchClosed)

	var future client.Future[int]
	ended, end := context.WithCancel(ctx)
	end()
	_, err = future.Wait(ended)
	require.ErrorIs(t, err, context.Canceled)

	var c client.Client
	_, err = c.Session(ctx)
	require.ErrorContains(t, err, "client.New")
	_, err = c.Partitions(ctx)
	require.ErrorContains(t, err, "client.New")
	_, ok = c.Partition("k")
	require.False(t, ok)
	require.NoError(t, c.Close())
}

// A watch without a feed has one of its own.
func TestWatchWithoutAFeed(t *testing.T) {
	s := newFake(t, 1).session()
	ctx := testContext(t)
	w, err := s.WatchAsync(nil, "k").Wait(ctx)
	require.NoError(t, err)
	s.PutAsync("k", "v")
	n, err := w.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "v", string(n.Events[0].Kv.Value))
}
