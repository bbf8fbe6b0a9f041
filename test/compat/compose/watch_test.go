package compose

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

func TestWatch(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		e.put("/us/a", "old")
		events := e.Watch(e.ctx, "/us/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		require.True(t, (<-events).Created)
		e.put("/us/a", "new")
		r := <-events
		require.NoError(t, r.Err())
		require.Len(t, r.Events, 1)
		require.Equal(t, "/us/a", string(r.Events[0].Kv.Key))
		require.Equal(t, "/us/a", string(r.Events[0].PrevKv.Key))
		require.Equal(t, "old", string(r.Events[0].PrevKv.Value))

		r = <-e.Watch(e.ctx, "/", clientv3.WithPrefix())
		require.ErrorIs(t, r.Err(), compose.ErrSpans)
	})
}

// TestFeed has a client write to both clusters in turn, and read the events:
// they come in the order in which the writes were made, although they are of
// two clusters.
func TestFeed(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		f := e.NewFeed()
		t.Cleanup(f.Close)
		all, err := f.Watch(e.ctx, "/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, all, 2)
		const writes = 200
		go func() {
			for i := range writes {
				e.PutAsync([]string{"/eu/k", "/us/k"}[i/3%2], fmt.Sprint(i))
			}
		}()
		for i := range writes {
			n, err := f.Next(e.ctx)
			require.NoError(t, err)
			require.NoError(t, n.Err)
			require.Len(t, n.Events, 1)
			require.Equal(t, fmt.Sprint(i), string(n.Events[0].Kv.Value))
		}
	})
}

// TestFeedCutOff stops a cluster: its watches end with an error that names it, and the
// others go on.
func TestFeedCutOff(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		f := e.NewFeed()
		t.Cleanup(f.Close)
		_, err := f.Watch(e.ctx, "/", clientv3.WithPrefix())
		require.NoError(t, err)
		e.put("/us/k", "seen")
		e.put("/eu/k", "behind it")
		for _, want := range []string{"seen", "behind it"} {
			n, err := f.Next(e.ctx)
			require.NoError(t, err)
			require.Equal(t, want, string(n.Events[0].Kv.Value))
		}
		require.NoError(t, e.us.Servers[0].Pause())
		t.Cleanup(func() { _ = e.us.Servers[0].Resume() })
		e.put("/eu/k", "goes on")
		n, err := f.Next(e.ctx)
		require.NoError(t, err)
		require.Equal(t, "goes on", string(n.Events[0].Kv.Value))
		began := time.Now()
		n, err = f.Next(e.ctx)
		require.NoError(t, err)
		var in *compose.ClusterError
		require.ErrorAs(t, n.Err, &in)
		require.Equal(t, "us", in.Cluster)
		require.Less(t, time.Since(began), 6*time.Second)
		e.put("/eu/k", "and on")
		n, err = f.Next(e.ctx)
		require.NoError(t, err)
		require.Equal(t, "and on", string(n.Events[0].Kv.Value))
	})
}
