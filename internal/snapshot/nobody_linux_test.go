package snapshot

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// nobody is a user without rights.
const nobody = 65534

// The user who restores has the data directory, and need not be able to read what that is in.
func TestRestoreBelowADirectoryOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test acts as another user, which only root may")
	}
	dir := t.TempDir()
	file, above := filepath.Join(dir, "file"), filepath.Join(dir, "above")
	save(t, file)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) // of this test
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Mkdir(above, 0o711))
	data := filepath.Join(above, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Chown(data, nobody, nobody))

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(nobody)) // of this thread, with the rights of root over files
	defer unix.Setfsuid(0)                    //nolint:errcheck // it can't fail
	_, err := os.ReadDir(above)
	require.ErrorIs(t, err, os.ErrPermission)
	_, err = Restore(t.Context(), file, second(data))
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(data, member))
}
