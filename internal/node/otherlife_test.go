package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/stoa-kv/stoa/internal/bootstrap"
)

// A member that has nothing yet doesn't take the log of an earlier life, which was left behind in a directory of its own, for its
// own: it is that of the same member of the same cluster, as settings and restored files give these.
func TestALogOfAnEarlierLifeIsRefused(t *testing.T) {
	walDir := filepath.Join(t.TempDir(), "wal")
	c := newCluster(t, 1, 2, func(c *Config) { c.WALDir = walDir })
	c.ready()
	c.put(0, "/k", "of the life before")
	c.stop(0)
	config := c.configs[0]

	config.DataDir = t.TempDir()
	_, err := Start(config)
	require.ErrorContains(t, err, walDir)
	require.ErrorContains(t, err, "has never begun")
	require.FileExists(t, filepath.Join(walDir, "0000000000000001.wal"))

	// Nor does one that has its file, and was killed before it could note that it had begun, or that was restored.
	if config.Registry, err = bootstrap.Open(filepath.Join(config.DataDir, "member"), zaptest.NewLogger(t)); err != nil {
		t.Fatal(err)
	}
	defer config.Registry.Close()
	require.NoError(t, config.Registry.Begin(bootstrap.Self{Cluster: 77, Member: 1, Members: []bootstrap.Member{{ID: 1}}, Partitions: 2}))
	_, err = Start(config)
	require.ErrorContains(t, err, "has never begun")

	require.NoError(t, os.RemoveAll(walDir))
	n, err := Start(config)
	require.NoError(t, err)
	require.NoError(t, n.Stop(t.Context()))
}
