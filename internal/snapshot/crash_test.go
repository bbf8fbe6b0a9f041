package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
)

// TestMain lets a test run itself again as a process that is killed on its way.
func TestMain(m *testing.M) {
	if file := os.Getenv("STOA_RESTORE_AND_DIE"); file != "" {
		c := second(os.Getenv("STOA_RESTORE_INTO"))
		c.Progress = func(int64, int64) { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
		_, _ = Restore(context.Background(), file, c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A directory in which a restore was killed is refused by a server, and by another restore,
// until it is removed.
func TestKilledRestore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	save(t, file)
	c := second(filepath.Join(dir, "data"))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STOA_RESTORE_AND_DIE="+file, "STOA_RESTORE_INTO="+c.DataDir)
	require.ErrorContains(t, cmd.Run(), "killed")
	require.DirExists(t, filepath.Join(c.DataDir, unfinished))
	require.NoDirExists(t, filepath.Join(c.DataDir, member))

	err := Refuse(c.DataDir)
	require.ErrorContains(t, err, "was interrupted")
	require.ErrorContains(t, err, "remove the directory")
	require.NoError(t, TakeOver(t.Context(), c.DataDir, "", 3, false, zap.NewNop()))
	require.Error(t, Refuse(c.DataDir))
	_, err = Restore(t.Context(), file, c)
	require.ErrorContains(t, err, "remove it, and restore again")
	require.NoError(t, os.RemoveAll(c.DataDir))
	_, err = Restore(t.Context(), file, c)
	require.NoError(t, err)
}

// A takeover that was killed at any point is completed by the next start.
func TestKilledTakeOver(t *testing.T) {
	half := func(t *testing.T, dataDir string) {
		d, err := newDirectory(dataDir)
		require.NoError(t, err)
		d.release()
		require.NoError(t, os.WriteFile(d.dbPath(), []byte("half of it"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(d.path(), "bootstrap.json"), nil, 0o600))
	}
	for name, kill := range map[string]func(t *testing.T, dataDir string){
		"while copying": half,
		"between the renames": func(t *testing.T, dataDir string) {
			require.NoError(t, take(t, dataDir))
			require.NoError(t, os.Rename(filepath.Join(dataDir, member), filepath.Join(dataDir, unfinished)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dataDir := etcdsDirectory(t, "restored.wal")
			kill(t, dataDir)
			require.NoError(t, take(t, dataDir))
			requireTaken(t, dataDir)
		})
	}
}

// Two processes don't work on one directory.
func TestTwoRestoresAtOnce(t *testing.T) {
	dataDir := etcdsDirectory(t, "restored.wal")
	d, err := newDirectory(dataDir)
	require.NoError(t, err)
	require.ErrorContains(t, take(t, dataDir), "another process")
	d.release()
	db, err := backend.Open(filepath.Join(dataDir, "member", "snap", "db"), backend.Options{Foreign: true})
	require.NoError(t, err)
	require.ErrorIs(t, take(t, dataDir), backend.ErrInUse, "a running etcd")
	require.NoError(t, db.Close())
	require.NoError(t, take(t, dataDir))
}
