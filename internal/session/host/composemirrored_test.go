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

// mirrored runs a test of a stoa cluster and of another one, which has a mirror of its keys.
func mirrored(t *testing.T, target compose.Kind, test func(*testing.T, *composedWorld)) {
	valCtxCh = nil
	synctest.Test(t, func(t *testing.T) {
		w := newComposedWorld(t, &composedPlan{Kinds: []compose.Kind{compose.Stoa, target}, Near: []int{0, 0}, Pause: 20, Mirror: true})
		for _, c := range w.clusters {
			c.start(t, keptKey, composedHang)
		}
		test(t, w)
		for _, root := range w.roots {
			require.NoError(t, root.Close())
		}
		for _, c := range w.clusters {
			c.stop()
		}
		time.Sleep(2 * composedTimeout)
	})
}

// TestStandByEnds: a worker of mirrors that waits for the place of another ends with its context, also while the cluster that elects them can't be reached.
func TestStandByEnds(t *testing.T) {
	mirrored(t, compose.Stoa, func(t *testing.T, w *composedWorld) {
		over, end := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range cap(ended) {
			c := w.composition()
			go func() { ended <- c.Mirror(over, compose.MirrorOptions{}) }()
		}
		time.Sleep(5 * time.Second)
		target := w.clusters[1]
		target.rig.shut.Store(true)
		target.wires.cutAll("")
		end()
		time.Sleep(10 * time.Second)
		require.Len(t, ended, cap(ended))

		target.rig.shut.Store(false)
		for range cap(ended) {
			require.NoError(t, <-ended)
		}
	})
}

// TestWatchTellsWhereItBegins: a watch begins behind what its client has seen, and tells that when it is open, though the mirror that it is opened at is behind.
func TestWatchTellsWhereItBegins(t *testing.T) {
	mirrored(t, compose.Etcd, func(t *testing.T, w *composedWorld) {
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
	})
}
