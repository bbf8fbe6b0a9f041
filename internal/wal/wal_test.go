package wal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stoa-kv/stoa/internal/vfs"
)

const testDir = "/data/wal"

// fixture opens one log over and over.
type fixture struct {
	t    *testing.T
	fs   *vfs.Mem
	o    Options
	got  []string
	logs *observer.ObservedLogs
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, fs: vfs.NewMem()}
	core, logs := observer.New(zap.WarnLevel)
	f.logs = logs
	f.o = Options{Dir: testDir, SegmentBytes: 1024, Metadata: []byte("cluster 1, server 2"), Logger: zap.New(core)}
	return f
}

func (f *fixture) tryOpen() (*WAL, error) {
	f.got = nil
	f.o.FS = f.fs
	return Open(f.o, func(r Record) error {
		f.got = append(f.got, show(r))
		return nil
	})
}

func (f *fixture) open() *WAL {
	f.t.Helper()
	w, err := f.tryOpen()
	require.NoError(f.t, err)
	return w
}

// restart is a kill -9 of the process.
func (f *fixture) restart() *WAL {
	f.t.Helper()
	f.fs = f.fs.Restart()
	return f.open()
}

func (f *fixture) openFails(parts ...string) error {
	f.t.Helper()
	_, err := f.tryOpen()
	require.Error(f.t, err)
	for _, part := range parts {
		require.ErrorContains(f.t, err, part)
	}
	return err
}

func (f *fixture) file(segment uint64) vfs.File {
	f.t.Helper()
	file, err := f.fs.Open(path.Join(testDir, segmentName(segment)))
	require.NoError(f.t, err)
	return file
}

// flip inverts one bit.
func (f *fixture) flip(segment uint64, at int64) {
	f.t.Helper()
	file := f.file(segment)
	b := make([]byte, 1)
	_, err := file.ReadAt(b, at)
	require.NoError(f.t, err)
	b[0] ^= 4
	_, err = file.WriteAt(b, at)
	require.NoError(f.t, err)
	require.NoError(f.t, file.Sync())
}

// truncate leaves the first size bytes of a segment.
func (f *fixture) truncate(segment uint64, size int64) {
	f.t.Helper()
	b := make([]byte, size)
	_, err := f.file(segment).ReadAt(b, 0)
	require.NoError(f.t, err)
	name := path.Join(testDir, segmentName(segment))
	require.NoError(f.t, f.fs.Remove(name))
	file, err := f.fs.Create(name)
	require.NoError(f.t, err)
	_, err = file.WriteAt(b, 0)
	require.NoError(f.t, err)
}

func show(r Record) string {
	return fmt.Sprintf("%d/%d/%d/%d/%q", r.Group, r.Kind, r.Index, r.Note, r.Data)
}

func shows(recs []Record) (s []string) {
	for _, r := range recs {
		s = append(s, show(r))
	}
	return s
}

func rec(group uint32, index uint64, data string) Record {
	return Record{Group: group, Kind: 7, Index: index, Note: 3, Data: []byte(data)}
}

// put appends and syncs one record at a time, and returns where each ends.
func put(t *testing.T, w *WAL, recs ...Record) (ends []int64) {
	t.Helper()
	for _, r := range recs {
		require.NoError(t, w.Append([]Record{r}))
		require.NoError(t, w.Sync())
		ends = append(ends, w.tail().end)
	}
	return ends
}

func TestSyncedRecordsAreReplayedInOrder(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	require.Empty(t, f.got)
	recs := []Record{
		rec(1, 1, "one"), rec(2, 1, ""), rec(1, 2, "two"),
		{Group: 1<<32 - 1, Kind: 255, Index: 1<<64 - 1, Note: 1<<64 - 1, Data: bytes.Repeat([]byte{0}, 300)},
	}
	require.NoError(t, w.Append(recs[:2]))
	require.NoError(t, w.Append(nil))
	require.NoError(t, w.Append(recs[2:]))
	require.NoError(t, w.Sync())
	require.NoError(t, w.Sync())

	w = f.restart()
	require.Equal(t, shows(recs), f.got)
	more := rec(3, 9, "after a restart")
	put(t, w, more)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "closing twice does no harm")
	require.ErrorIs(t, w.Append(recs), errClosed)

	f.open()
	require.Equal(t, append(shows(recs), show(more)), f.got)
	require.Zero(t, f.logs.Len(), "nothing was torn")
}

func TestALogIsLocked(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	_, err := f.tryOpen()
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, w.Close())
	require.NoError(t, f.open().Close())
}

func TestRotationRepeatsTheHeadAndReleaseDeletesOldSegments(t *testing.T) {
	f := newFixture(t)
	state := "none"
	f.o.Head = func() []Record { return []Record{{Group: 5, Kind: 1, Data: []byte(state)}} }
	w := f.open()
	var want []string
	for i := range 30 {
		r := rec(0, uint64(i+1), fmt.Sprintf("%0100d", i))
		state = fmt.Sprint("before ", i)
		before := w.Segments()
		put(t, w, r)
		if w.Segments() > before {
			want = append(want, show(Record{Group: 5, Kind: 1, Data: []byte(state)}))
		}
		want = append(want, show(r))
	}
	require.Equal(t, 5, w.Segments())
	w = f.restart()
	require.Equal(t, want, f.got)

	size := w.Size()
	require.NoError(t, w.Release(needs(0)))
	require.NoError(t, w.Release(needs(1)))
	require.Equal(t, 5, w.Segments())
	require.NoError(t, w.Release(needs(8)))
	require.Equal(t, 4, w.Segments(), "the first holds 1 to 7")
	require.NoError(t, w.Release(needs(1<<62)))
	require.Equal(t, 1, w.Segments(), "the last is written to")
	require.Less(t, w.Size(), size)

	put(t, w, rec(0, 31, "more"))
	f.restart()
	require.Equal(t, "5/1/0/0/\"before 24\"", f.got[0])
	require.Equal(t, show(rec(0, 31, "more")), f.got[len(f.got)-1])
}

func TestABatchLargerThanASegmentGetsItsOwn(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	recs := []Record{rec(0, 1, "small"), rec(1, 1, string(bytes.Repeat([]byte("x"), 10_000))), rec(0, 2, "small")}
	put(t, w, recs...)
	f.restart()
	require.Equal(t, shows(recs), f.got)
}

func TestReleaseRunsBesideTheWriter(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	written := make(chan uint64, 1)
	done := make(chan error)
	go func() {
		for n := range written {
			if err := w.Release(needs(n)); err != nil {
				done <- err
				return
			}
			w.Size()
		}
		done <- nil
	}()
	for i := range uint64(300) {
		put(t, w, rec(0, i+1, "some more bytes than few"))
		select {
		case written <- i + 1:
		default:
		}
	}
	close(written)
	require.NoError(t, <-done)
	require.NoError(t, w.Release(needs(301)))
	require.Equal(t, 1, w.Segments())
	f.restart()
	require.Equal(t, show(rec(0, 300, "some more bytes than few")), f.got[len(f.got)-1])
}

// needs is what Release takes: of each group, from the first, the index from which it needs
// records.
func needs(from ...uint64) map[uint32]uint64 {
	keep := map[uint32]uint64{}
	for group, index := range from {
		keep[uint32(group)] = index
	}
	return keep
}

func TestAGroupThatIsGoneNeedsNothing(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	for i := range uint64(30) {
		put(t, w, rec(0, i+1, "of one that goes on"), rec(1, i+1, "of one that is gone"))
	}
	require.NoError(t, w.Release(needs(0, 0)))
	require.Greater(t, w.Segments(), 1)
	require.NoError(t, w.Release(needs(31)))
	require.Equal(t, 1, w.Segments())
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
