package compose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

func TestKV(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		e.put("/eu/a", "1")
		e.put("/us/b", "2")
		require.Equal(t, "1", string(e.get("/eu/a").Kvs[0].Value))
		require.Equal(t, "/us/b", string(e.get("/us/b").Kvs[0].Key))

		there, err := e.direct(e.us).Get(e.ctx, "/b")
		require.NoError(t, err)
		require.Equal(t, "2", string(there.Kvs[0].Value), "the prefix is stripped")

		txn, err := e.Txn(e.ctx).If(clientv3.Compare(clientv3.Value("/us/b"), "=", "2")).
			Then(clientv3.OpPut("/us/c", "3", clientv3.WithPrevKV()), clientv3.OpGet("/us/", clientv3.WithPrefix())).
			Else(clientv3.OpGet("/us/b")).Commit()
		require.NoError(t, err)
		require.True(t, txn.Succeeded)
		all := txn.Responses[1].GetResponseRange()
		require.Equal(t, []string{"/us/b", "/us/c"}, keys((*clientv3.GetResponse)(all)))

		_, err = e.Txn(e.ctx).Then(clientv3.OpPut("/us/c", ""), clientv3.OpPut("/eu/c", "")).Commit()
		require.ErrorIs(t, err, compose.ErrSpans)
		_, err = e.Put(e.ctx, "/asia/x", "")
		require.ErrorIs(t, err, compose.ErrNoRoute)
		_, err = e.Delete(e.ctx, "/", clientv3.WithPrefix())
		require.ErrorIs(t, err, compose.ErrSpans)

		gone, err := e.Delete(e.ctx, "/us/", clientv3.WithPrefix(), clientv3.WithPrevKV())
		require.NoError(t, err)
		require.EqualValues(t, 2, gone.Deleted)
		require.Equal(t, "/us/b", string(gone.PrevKvs[0].Key))
	})
}

// TestSpan reads a range over both clusters, in one order, as of one cluster.
func TestSpan(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		for i := range 3 {
			e.put(fmt.Sprintf("/eu/%d", i), "e")
			e.put(fmt.Sprintf("/us/%d", i), "u")
		}
		all := e.get("/", clientv3.WithPrefix())
		require.Equal(t, []string{"/eu/0", "/eu/1", "/eu/2", "/us/0", "/us/1", "/us/2"}, keys(all))
		require.EqualValues(t, 6, all.Count)

		some := e.get("/", clientv3.WithPrefix(), clientv3.WithLimit(4), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithKeysOnly())
		require.Equal(t, []string{"/us/2", "/us/1", "/us/0", "/eu/2"}, keys(some))
		require.True(t, some.More)
		require.EqualValues(t, 6, some.Count)
		require.EqualValues(t, 6, e.get("/", clientv3.WithPrefix(), clientv3.WithCountOnly()).Count)

		_, err := e.Get(e.ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(2))
		require.ErrorIs(t, err, compose.ErrNotOverSpan)
		_, err = e.Get(e.ctx, "/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
		require.ErrorIs(t, err, compose.ErrNotOverSpan)
	})
}

// TestAsync sends to both clusters in turn without waiting: everything takes effect in
// the order in which it was sent.
func TestAsync(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		var puts []*client.Future[*clientv3.PutResponse]
		var gets []*client.Future[*clientv3.GetResponse]
		for i := range 200 {
			key := []string{"/eu/k", "/us/k"}[i/5%2]
			puts = append(puts, e.PutAsync(key, fmt.Sprint(i)))
			gets = append(gets, e.GetAsync(key))
		}
		for i := range puts {
			_, err := puts[i].Wait(e.ctx)
			require.NoError(t, err)
			got, err := gets[i].Wait(e.ctx)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), string(got.Kvs[0].Value), "a read sees the write before it, and none behind it")
		}
		s := e.Stats()
		require.EqualValues(t, 40, s.Switches)
		require.Zero(t, s.Syncs, "an update led each")
	})
}

// TestSyncs counts: a sync for each switch to a read, none within a cluster.
func TestSyncs(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		for range 10 {
			for range 5 {
				e.get("/eu/a")
			}
			for range 5 {
				e.get("/us/a")
			}
		}
		s := e.Stats()
		require.EqualValues(t, 100, s.Reads)
		require.EqualValues(t, 20, s.Switches)
		require.Equal(t, s.Switches, s.Syncs)
		require.Zero(t, s.Resyncs+s.Stale+s.Failures)
	})
}

func keys(got *clientv3.GetResponse) (all []string) {
	for _, kv := range got.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// TestSynced counts: every read of a synced client is a synced one, by any
// method, and none of another.
func TestSynced(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		e.put("/eu/a", "1")
		syncs := func(c *compose.Client, read func(c *compose.Client) error) int64 {
			before := e.Stats()
			require.NoError(t, read(c))
			after := e.Stats()
			require.Positive(t, after.Reads-before.Reads)
			return after.Syncs + after.Resyncs - before.Syncs - before.Resyncs
		}
		for _, read := range []func(c *compose.Client) error{
			func(c *compose.Client) error { _, err := c.Get(e.ctx, "/eu/a"); return err },
			func(c *compose.Client) error { _, err := c.GetAsync("/eu/a").Wait(e.ctx); return err },
			func(c *compose.Client) error { _, err := c.Get(e.ctx, "/eu/", clientv3.WithPrefix()); return err },
			func(c *compose.Client) error {
				_, err := c.Txn(e.ctx).Then(clientv3.OpGet("/eu/a")).Commit()
				return err
			},
			func(c *compose.Client) error { _, err := c.Etcd().Get(e.ctx, "/eu/a"); return err },
		} {
			require.EqualValues(t, 0, syncs(e.Client, read))
			require.EqualValues(t, 1, syncs(e.Synced(), read))
		}
		all := func(c *compose.Client) error { _, err := c.Get(e.ctx, "/", clientv3.WithPrefix()); return err }
		require.EqualValues(t, 2, syncs(e.Synced(), all), "one of each cluster")
	})
}
