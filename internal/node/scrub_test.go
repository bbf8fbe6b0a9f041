package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
)

// A bit that changes in memory ends the server within a pass, and it goes on from file and log
// with what was written.
func TestAChangedBitInMemoryEndsTheServer(t *testing.T) {
	failed := make(chan error, 1)
	c := newCluster(t, 1, 2, func(c *Config) {
		c.ScrubPass = 10 * time.Millisecond
		c.Fatal = func(err error) { failed <- err }
	})
	c.ready()
	c.put(0, "/a/key", "value")
	require.NoError(t, c.nodes[0].flushNow())
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, failed)
	core := c.nodes[0].core.Load()
	flip(core.stores[core.machine.Placement().Partition([]byte("/a/key"))].Get([]byte("/a/key")).Value())
	select {
	case err := <-failed:
		require.ErrorIs(t, err, backend.ErrDiffers)
		require.ErrorContains(t, err, `"/a/key"`)
	case <-time.After(10 * time.Second):
		t.Fatal("not found")
	}
	c.stop(0)
	c.start(0)
	c.ready()
	require.Equal(t, "value", string(c.get(0, "/a/key", "").Kvs[0].Value))
}

// flip is no write of the program's.
//
//go:norace
func flip(b []byte) { b[0] ^= 1 }
