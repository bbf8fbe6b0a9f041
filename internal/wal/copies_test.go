package wal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

const sector = 64 // of the small segments here

// content is a file's bytes.
func (f *fixture) content(segment uint64) []byte {
	f.t.Helper()
	b := make([]byte, 1024)
	_, err := f.file(segment).ReadAt(b, 0)
	require.NoError(f.t, err)
	return b
}

// written is a log that was used, with the content of its segments after each append.
func written(t *testing.T) (f *fixture, history []map[uint64][]byte, want []string) {
	f = newFixture(t)
	w := f.open()
	for i := range 16 {
		r := rec(0, uint64(i+1), fmt.Sprintf("%0100d", i))
		want = append(want, show(r))
		put(t, w, r)
		now := map[uint64][]byte{}
		for n := uint64(1); n <= w.tail().number; n++ {
			now[n] = f.content(n)
		}
		history = append(history, now)
	}
	f.o.Reaches = w.Durable()
	f.fs = f.fs.Restart() // killed: no mark says that its end is the end
	return f, history, want
}

// with is a copy of the log with other content of segments.
func (f *fixture) with(segments map[uint64][]byte) *fixture {
	c := &fixture{t: f.t, fs: vfs.NewMem(), o: f.o, logs: f.logs}
	require.NoError(f.t, c.fs.MkdirAll(testDir))
	for n, b := range segments {
		file, err := c.fs.Create(segmentPath(n))
		require.NoError(f.t, err)
		_, err = file.WriteAt(b, 0)
		require.NoError(f.t, err)
	}
	return c
}

// sound opens a log that may be damaged: it has all, or is refused with a file and an
// offset.
func (f *fixture) sound(want []string, what string, args ...any) (refused bool) {
	f.t.Helper()
	w, err := f.tryOpen()
	if err == nil {
		require.Equal(f.t, want, f.got, what, args)
		require.NoError(f.t, w.Close())
		return false
	}
	require.NotEmpty(f.t, damage(f.t, err).File)
	return true
}

// Sectors that were never written, were written elsewhere, or have the content of an
// earlier time; and segments that were cut.
func TestEverySector(t *testing.T) {
	f, history, want := written(t)
	last := history[len(history)-1]
	refused := 0
	for n := range last {
		for at := 0; at < 1024; at += sector {
			try := func(what string, change func(b []byte)) {
				segments := map[uint64][]byte{1: last[1], 2: last[2], 3: last[3]}
				segments[n] = bytes.Clone(last[n])
				change(segments[n][at : at+sector])
				if f.with(segments).sound(want, "%s: segment %d, offset %d", what, n, at) {
					refused++
				}
			}
			try("zeros", func(b []byte) { clear(b) })
			try("ones", func(b []byte) { copy(b, bytes.Repeat([]byte{0xff}, len(b))) })
			for other := 0; other < 1024; other += sector {
				try("another sector's", func(b []byte) { copy(b, last[n][other:]) })
				try("another segment's", func(b []byte) { copy(b, last[n%3+1][other:]) })
			}
			for i := range history {
				if old := history[i][n]; old != nil {
					try("an earlier one", func(b []byte) { copy(b, old[at:]) })
				}
			}
			cut := map[uint64][]byte{1: last[1], 2: last[2], 3: last[3]}
			cut[n] = last[n][:at]
			require.True(t, f.with(cut).sound(want, "cut"), "segment %d cut at %d", n, at)
		}
	}
	t.Logf("%d logs refused", refused)
	require.Greater(t, refused, 1000)
}

// A log is never taken for the present one if it is a copy from an earlier moment, though
// in itself it is whole; nor is one in which a single segment is.
func TestAnOlderCopy(t *testing.T) {
	f, history, want := written(t)
	last := len(history) - 1
	for i, then := range history {
		require.Equal(t, i != last, f.with(then).sound(want, "the log after %d appends", i+1))
		for n := range then {
			if bytes.Equal(then[n], history[last][n]) {
				continue
			}
			segments := map[uint64][]byte{1: history[last][1], 2: history[last][2], 3: history[last][3]}
			segments[n] = then[n]
			// What an older sealed segment lacks is the seal only.
			f.with(segments).sound(want, "segment %d after %d appends", n, i+1)
		}
	}
	err := f.with(history[last-1]).openFails("the log ends here", "the log is an older copy")
	require.Equal(t, segmentPath(3), damage(t, err).File)
}

// What looks like a torn tail is not one if it is known to have been synced.
func TestAnUnprovenFrameThatWasSeen(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	ends := put(t, w, rec(0, 1, "one"), rec(0, 2, "two"))
	f.o.Reaches = w.Durable()
	require.Equal(t, Place{1, ends[1]}, f.o.Reaches)
	f.fs = f.fs.Restart()
	f.flip(1, ends[0]+30)
	err := f.openFails("the checksum of the records is wrong", fmt.Sprintf("synced up to offset %d", ends[1]))
	require.Equal(t, ends[0], damage(t, err).Offset)
	f.openFails("damaged")
	f.flip(1, ends[0]+30) // nothing was cut
	f.open()
	require.Len(t, f.got, 2)
}
