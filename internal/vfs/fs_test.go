package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// Both file systems behave alike as long as nothing crashes.
func TestContract(t *testing.T) {
	t.Run("os", func(t *testing.T) { testContract(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) { testContract(t, NewMem(), "/tmp/x") })
}

func testContract(t *testing.T, fsys FS, root string) {
	dir := path.Join(root, "a/b")
	name := func(s string) string { return path.Join(dir, s) }
	_, err := fsys.List(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fsys.Create(name("f"))
	require.ErrorIs(t, err, fs.ErrNotExist, "no directory yet")
	require.NoError(t, fsys.MkdirAll(dir))
	require.NoError(t, fsys.MkdirAll(dir))

	f, err := fsys.Create(name("f"))
	require.NoError(t, err)
	_, err = fsys.Create(name("f"))
	require.ErrorIs(t, err, fs.ErrExist)
	testFile(t, f)

	require.NoError(t, fsys.Rename(name("f"), name("g")))
	_, err = fsys.Open(name("f"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	r, err := fsys.OpenRead(name("g"))
	require.NoError(t, err)
	_, err = r.WriteAt([]byte("x"), 0)
	require.Error(t, err, "opened for reading only")
	require.NoError(t, r.Close())

	h, err := fsys.Create(name("c"))
	require.NoError(t, err)
	require.NoError(t, h.Close())
	names, err := fsys.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"c", "g"}, names)
	require.NoError(t, fsys.Remove(name("c")))
	require.ErrorIs(t, fsys.Remove(name("c")), fs.ErrNotExist)
	require.NoError(t, fsys.SyncDir(dir))

	l, err := fsys.Lock(name("LOCK"))
	require.NoError(t, err)
	_, err = fsys.Lock(name("LOCK"))
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, name("LOCK"))
	require.NoError(t, l.Close())
	l, err = fsys.Lock(name("LOCK"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func testFile(t *testing.T, f File) {
	require.NoError(t, f.Preallocate(10_000))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 10_000, size)
	_, err = f.WriteAt([]byte("across a page"), 4090)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	b := make([]byte, 20)
	_, err = f.ReadAt(b, 4088)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00across a page\x00\x00\x00\x00\x00", string(b))
	from, to, err := f.NextData(0)
	require.NoError(t, err)
	require.LessOrEqual(t, from, int64(4090), "what was written is data")
	require.GreaterOrEqual(t, to, int64(4103))
	from, _, err = f.NextData(4100)
	require.NoError(t, err)
	require.EqualValues(t, 4100, from)
	from, to, err = f.NextData(10_000)
	require.NoError(t, err)
	require.Equal(t, []int64{10_000, 10_000}, []int64{from, to}, "the end")
	n, err := f.ReadAt(b, 9_990)
	require.Equal(t, 10, n)
	require.ErrorIs(t, err, io.EOF)
	_, err = f.WriteAt([]byte("end"), 9_999)
	require.NoError(t, err)
	size, err = f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 10_002, size, "a write past the end makes the file longer")
	require.NoError(t, f.Close())
	_, err = f.WriteAt([]byte("x"), 0)
	require.True(t, errors.Is(err, fs.ErrClosed), err)
}
