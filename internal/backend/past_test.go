package backend_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/version"
)

// A snapshot of the past has the history up to there, and claims no later revision; the file, and what it is of, stay as they are.
func TestSnapshotOfThePast(t *testing.T) {
	dir := t.TempDir()
	s := newServer(open(t, filepath.Join(dir, "db")))
	s.fill(t, 100)
	rev, want := s.rev, dump(t, s.be)
	other := filepath.Join(dir, "db.copy") // a copy of another file that was in this place
	require.NoError(t, os.WriteFile(other, []byte("other"), 0o600))
	setLevel(t, s.be, s.stores, version.Newest)
	s.fill(t, 100)
	all := dump(t, s.be)
	snap, err := s.be.Snapshot()
	require.NoError(t, err)
	past, err := snap.Past(rev)
	require.NoError(t, err)
	require.NoError(t, snap.Close())
	require.Equal(t, all, dump(t, s.be))

	var content bytes.Buffer
	size, err := past.WriteTo(&content)
	require.NoError(t, err)
	require.Equal(t, past.Size, size)
	require.NoError(t, past.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "other", string(text))

	path := filepath.Join(dir, "past")
	require.NoError(t, os.WriteFile(path, content.Bytes(), 0o600))
	b := open(t, path)
	require.Equal(t, want, dump(t, b))
	meta, err := b.Meta()
	require.NoError(t, err)
	for _, at := range meta.Positions {
		require.LessOrEqual(t, at.Rev, rev)
	}
	require.NoError(t, b.Load(stores(2, b), benchRoute(2), nil)) // the file has no checksums that are of other keys
}
