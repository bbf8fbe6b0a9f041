package backend_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
)

func TestRests(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	require.NoError(t, backend.RemoveRests(filepath.Join(dir, "none", "db")))
	keeps := []string{"db", "db-copy", "db.received.tar", "other.copy1", "db.copy-of-monday", "db.copy.gz", "db.copy2b", "db.copy"}
	for _, name := range append(keeps, "db.new", "db.defrag", "db.received", "db.copy123") {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "db.copy7", "of"), 0o700))
	keeps = append(keeps, "db.copy7")
	require.NoError(t, backend.RemoveRests(path))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var left []string
	for _, e := range list {
		left = append(left, e.Name())
	}
	require.ElementsMatch(t, keeps, left)
}
