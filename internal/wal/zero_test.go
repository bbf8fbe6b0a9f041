package wal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// counting counts the bytes written to the files opened through it.
type counting struct {
	vfs.FS
	written *int
}

func (c counting) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	return countingFile{f, c.written}, err
}

type countingFile struct {
	vfs.File
	written *int
}

func (f countingFile) WriteAt(b []byte, at int64) (int, error) {
	*f.written += len(b)
	return f.File.WriteAt(b, at)
}

// Among large frames little is written ahead: the next of them would be written over
// it. Among small ones alone the steps grow, so that few syncs meet new room.
func TestZerosAheadSuitTheFrames(t *testing.T) {
	written := 0
	w, err := Open(Options{FS: counting{vfs.NewMem(), &written}, Dir: "log"}, func(Record) error { return nil })
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
