package wal

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// counting counts the bytes read from and written to the files opened through it.
type counting struct {
	vfs.FS
	read, written *int
}

func (c counting) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	return countingFile{f, c.read, c.written}, err
}

func (c counting) OpenRead(name string) (vfs.File, error) {
	f, err := c.FS.OpenRead(name)
	return countingFile{f, c.read, c.written}, err
}

type countingFile struct {
	vfs.File
	read, written *int
}

func (f countingFile) ReadAt(b []byte, at int64) (int, error) {
	*f.read += len(b)
	return f.File.ReadAt(b, at)
}

func (f countingFile) WriteAt(b []byte, at int64) (int, error) {
	*f.written += len(b)
	return f.File.WriteAt(b, at)
}

// A start doesn't read the room that a segment has been given and that was never written to; a byte far
// behind the end is found.
func TestRoomIsNotRead(t *testing.T) {
	dir := t.TempDir()
	for name, fsys := range map[string]vfs.FS{"os": vfs.OS(), "mem": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			read, written := 0, 0
			counts := counting{fsys, &read, &written}
			open := func() *WAL {
				w, err := Open(Options{FS: counts, Dir: dir}, func(Record) error { return nil })
				require.NoError(t, err)
				return w
			}
			w := open()
			put(t, w, rec(0, 1, "x"))
			require.NoError(t, w.Close())
			read = 0
			require.NoError(t, open().Close())
			require.Less(t, read, 4<<20)

			f, err := fsys.Open(path.Join(dir, segmentName(1)))
			require.NoError(t, err)
			size, err := f.Size()
			require.NoError(t, err)
			require.Greater(t, size, int64(16<<20))
			_, err = f.WriteAt([]byte{7}, size-1)
			require.NoError(t, err)
			last, err := (&window{file: f, size: size}).lastNonZero(1 << 20)
			require.NoError(t, err)
			require.Equal(t, size, last)
			require.NoError(t, f.Close())
		})
	}
}

// Among large frames little is written ahead: the next of them would be written over
// it. Among small ones alone the steps grow, so that few syncs meet new room.
func TestZerosAheadSuitTheFrames(t *testing.T) {
	read, written := 0, 0
	w, err := Open(Options{FS: counting{vfs.NewMem(), &read, &written}, Dir: "log"}, func(Record) error { return nil })
	require.NoError(t, err)
	small, large := rec(0, 1, string(make([]byte, 300))), rec(0, 2, string(make([]byte, 1<<20)))
	put(t, w, large) // in the segment that is counted

	written = 0
	for range 10 {
		put(t, w, large)
		for range 20 {
			put(t, w, small)
		}
	}
	require.Less(t, written, 10*(1<<20)+10*2*minZeroAhead+10*20*400)

	written = 0
	steps := 0
	for i := 0; i < 8000; i++ {
		before := written
		put(t, w, small)
		if written > before+1000 {
			steps++
		}
	}
	require.LessOrEqual(t, steps, 8, "of %d bytes", written)
	require.NoError(t, w.Close())
}
