package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/store"
)

// What a cut takes while all stores are locked doesn't grow with the number of extensions:
// the map by which keys are placed is encoded later, as is the membership.
func TestACutDoesNotEncodeThePlacement(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	n := c.nodes[0]
	core := n.current()
	core.flushing.Lock() // no flush comes in between
	defer core.flushing.Unlock()
	c.put(0, "/em/e", countsExpired)
	store.LockAll(core.stores)
	cut := core.cut()
	store.UnlockAll(core.stores)
	require.Empty(t, cut.System.Blobs)
	core.system.complete(&cut.System)
	require.Contains(t, cut.System.Blobs, "placement")
	require.NoError(t, core.backend.Flush(cut))
	core.system.written()
}
