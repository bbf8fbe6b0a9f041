package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/store"
)

// A file of an earlier version has none.
func TestEpochsAreInTheFile(t *testing.T) {
	b := backend.NewMem(backend.Identity{Cluster: 7, Server: 1, Partitions: 2})
	meta, err := b.Meta()
	require.NoError(t, err)
	none, err := ReadEpochs(&meta)
	require.NoError(t, err)
	require.Equal(t, make([]command.Epochs, 2), none)

	now := []command.Epochs{
		{Epoch: command.Epoch{Term: 3, Origin: 1 << 63, Seq: 4, First: 9}, Before: []command.Epoch{{Term: 2, Origin: 5, Seq: 6, First: 7}}},
		{Epoch: command.Epoch{Term: 2, Origin: 5, Seq: 6}},
	}
	cut := &backend.Cut{Partitions: make([]store.Cut, 2)}
	CutEpochs(&cut.System, none, none)
	require.Empty(t, cut.System.Blobs, "the file has them already")
	CutEpochs(&cut.System, none, now)
	require.NoError(t, b.Flush(cut))
	meta, err = b.Meta()
	require.NoError(t, err)
	back, err := ReadEpochs(&meta)
	require.NoError(t, err)
	require.Equal(t, now, back)

	for _, bad := range []string{`{`, `[{},{},{}]`} {
		meta.Blobs[epochsBlob] = []byte(bad)
		_, err = ReadEpochs(&meta)
		require.ErrorIs(t, err, backend.ErrDamaged)
	}
}
