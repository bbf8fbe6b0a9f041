package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/compose"
)

// TestStandByEnds: a worker of mirrors that waits for the place of another ends with its context, also while the cluster that elects them can't be reached.
func TestStandByEnds(t *testing.T) {
	valCtxCh = nil
	synctest.Test(t, func(t *testing.T) {
		plan := &composedPlan{Kinds: []compose.Kind{compose.Stoa, compose.Stoa}, Near: []int{0, 0}, Pause: 20, Mirror: true}
		w := newComposedWorld(t, plan)
		for _, c := range w.clusters {
			c.start(t, keptKey, composedHang)
		}
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
		for _, root := range w.roots {
			require.NoError(t, root.Close())
		}
		for _, c := range w.clusters {
			c.stop()
		}
		time.Sleep(2 * composedTimeout)
	})
}
