package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// TestWatchTellsWhereItBegins: a watch begins behind what its client has seen, and tells that when it is open, though the mirror that it is opened at is behind.
func TestWatchTellsWhereItBegins(t *testing.T) {
	valCtxCh = nil
	synctest.Test(t, func(t *testing.T) {
		plan := &composedPlan{Kinds: []compose.Kind{compose.Stoa, compose.Etcd}, Near: []int{0, 0}, Pause: 20, Mirror: true}
		w := newComposedWorld(t, plan)
		for _, c := range w.clusters {
			c.start(t, keptKey, composedHang)
		}
		copying, stop := context.WithCancel(t.Context())
		worker, c := w.composition(), w.composition()
		ended := make(chan error)
		go func() { ended <- worker.Mirror(copying, compose.MirrorOptions{Interval: 20 * time.Millisecond}) }()
		_, err := c.Put(t.Context(), "u/p", "1")
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		stop()
		require.NoError(t, <-ended)

		put, err := c.Put(t.Context(), "u/p", "2")
		require.NoError(t, err)
		watching, cancel := context.WithCancel(t.Context())
		watch := c.Watch(watching, "u/", clientv3.WithRange("u0"), clientv3.WithCreatedNotify())
		created := <-watch
		require.True(t, created.Created)
		require.Equal(t, put.Header.Revision, created.Header.Revision)
		cancel()

		for _, root := range w.roots {
			require.NoError(t, root.Close())
		}
		for _, c := range w.clusters {
			c.stop()
		}
		time.Sleep(2 * composedTimeout)
	})
}
