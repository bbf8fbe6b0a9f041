package snapshot

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

// BenchmarkRestore restores a file with 200,000 keys of 256 bytes.
func BenchmarkRestore(b *testing.B) {
	dir := b.TempDir()
	be, err := backend.Open(filepath.Join(dir, "db"), backend.Options{Identity: backend.Identity{Cluster: 1, Server: 1, Partitions: 1}, NoSync: true})
	require.NoError(b, err)
	s := store.New(be)
	for i := range 200_000 {
		s.Put(store.Revision{Main: int64(i + 2)}, fmt.Appendf(nil, "/registry/pods/ns-%03d/pod-%08d", i%500, i), make([]byte, 256), 0)
	}
	require.NoError(b, be.Flush(&backend.Cut{Partitions: []store.Cut{s.Cut()}}))
	snap, err := be.Snapshot()
	require.NoError(b, err)
	var content bytes.Buffer
	_, err = snap.WriteTo(&content)
	require.NoError(b, err)
	require.NoError(b, snap.Close())
	require.NoError(b, be.Close())
	sum := sha256.Sum256(content.Bytes())
	content.Write(sum[:])
	file := filepath.Join(dir, "file")
	require.NoError(b, os.WriteFile(file, content.Bytes(), 0o600))
	b.SetBytes(int64(content.Len()))
	for b.Loop() {
		c := second(filepath.Join(dir, "data"))
		_, err := Restore(b.Context(), file, c)
		require.NoError(b, err)
		require.NoError(b, os.RemoveAll(c.DataDir))
	}
}
