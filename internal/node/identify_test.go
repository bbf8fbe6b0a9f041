package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/transport"
)

// A peer is sent away for good if its data is not what it was, and not if this member can't write down that it has come.
func TestAPeerIsNotToBlameForThisMembersDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "member")
	registry, err := bootstrap.Open(dir, zap.NewNop())
	require.NoError(t, err)
	defer registry.Close()
	require.NoError(t, registry.Adopt(7, 1, 1))
	require.NoError(t, registry.Resume())
	n := &Node{cfg: Config{Registry: registry}}
	var o transport.Options
	n.identifyTo(&o)
	require.NoError(t, o.Meet(2, transport.Mark{Data: 5, Starts: 1}, 9))
	var outdated transport.Outdated
	require.ErrorAs(t, o.Meet(2, transport.Mark{Data: 6, Starts: 1}, 9), &outdated)
	require.ErrorContains(t, outdated, "another data directory")

	require.NoError(t, os.RemoveAll(dir))
	err = o.Meet(2, transport.Mark{Data: 5, Starts: 2}, 10) // it was started again
	require.Error(t, err)
	require.NotErrorAs(t, err, &outdated)
}
