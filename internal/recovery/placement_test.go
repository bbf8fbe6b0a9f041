package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// A cut has keys and map together; keys are loaded into the stores of that
// map.
func TestThePlacementIsInTheFile(t *testing.T) {
	b := backend.NewMem(backend.Identity{Cluster: 1, Server: 1, Partitions: 2})
	meta, err := b.Meta()
	require.NoError(t, err)
	old, err := Placement(&meta)
	require.NoError(t, err)
	require.True(t, old.Equal(placement.New(2)))

	stores, _, err := Load(b, &meta, old, false, nil)
	require.NoError(t, err)
	from := old.Partition([]byte("k"))
	stores[from].Put(store.Revision{Main: 2}, []byte("k"), []byte("v"), 0)
	slot := 0
	if from == 0 {
		slot = placement.Slots - 1
	}
	now := old.WithRules([]placement.Rule{{Key: "k", Slot: slot}})
	store.Move(stores, []byte("k"), []byte("k\x00"), store.Route{To: now.Run}, nil)

	cut := backend.Cut{Partitions: []store.Cut{stores[0].Cut(), stores[1].Cut()}}
	CutPlacement(&cut.System, old, old)
	require.Empty(t, cut.System.Blobs, "the file has it already")
	CutPlacement(&cut.System, old, now)
	require.NoError(t, b.Flush(&cut))

	meta, err = b.Meta()
	require.NoError(t, err)
	loaded, err := Placement(&meta)
	require.NoError(t, err)
	require.True(t, loaded.Equal(now))
	stores, _, err = Load(b, &meta, loaded, false, nil)
	require.NoError(t, err)
	require.False(t, stores[from].Get([]byte("k")).Exists())
	require.True(t, stores[1-from].Get([]byte("k")).Exists())

	meta.Blobs[placementBlob] = []byte{9}
	_, err = Placement(&meta)
	require.ErrorContains(t, err, "partition map")
	meta.Blobs[placementBlob] = placement.New(3).Encode()
	_, err = Placement(&meta)
	require.ErrorContains(t, err, "a map of 3 partitions in a file of 2")
}

// A file that was copied at the very end of a generation of groups has the map of the next one: a
// restore needs its rules and pins.
func TestAFileAtTheEndOfAGenerationHasTheNextMap(t *testing.T) {
	first := membership.FirstGroups(2)
	b := backend.NewMem(backend.Identity{Cluster: 1, Server: 1, Partitions: 2})
	cut := backend.Cut{Partitions: []store.Cut{store.New(nil).Cut(), store.New(nil).Cut()}}
	next := placement.New(2).Over(3).Towards(placement.New(3))
	CutPlacement(&cut.System, nil, next)
	CutGroups(&cut.System, first, first.Ending(3))
	require.NoError(t, b.Flush(&cut))
	meta, err := b.Meta()
	require.NoError(t, err)
	m, err := Placement(&meta)
	require.NoError(t, err)
	require.True(t, m.Equal(next))
}
