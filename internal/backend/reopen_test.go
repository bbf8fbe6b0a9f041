package backend

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/store"
)

// Another process has locked the new file when a defragmentation wants to open it. What comes next gets an error, and
// the metrics go on.
func TestAFileThatCannotBeReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	b, err := Open(path, Options{Identity: Identity{Cluster: 1, Server: 2, Partitions: 1}, NoSync: true, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	require.NoError(t, b.eng.update(func(w writer) error {
		for i := range 20 {
			if err := w.put(bucketKey, be64(uint64(i)), make([]byte, copyPiece/10)); err != nil {
				return err
			}
		}
		return nil
	}))

	f, done := b.eng.(*file), make(chan error, 1)
	f.mu.RLock() // so that the copy isn't renamed
	go func() { done <- b.Defragment() }()
	require.Eventually(t, func() bool { // bbolt has locked it by then, until it is complete
		s, err := os.Stat(path + ".defrag")
		return err == nil && s.Size() > copyPiece
	}, time.Minute, time.Millisecond)
	other, err := os.Open(path + ".defrag")
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	f.mu.RUnlock()
	require.ErrorContains(t, <-done, "after defragmentation")

	require.NotPanics(t, func() { b.CommitTimes() })
	require.Zero(t, b.Readers())
	require.ErrorContains(t, b.Flush(&Cut{Partitions: []store.Cut{{}}}), "after defragmentation")
	_, err = b.Snapshot()
	require.ErrorContains(t, err, "after defragmentation")
}
