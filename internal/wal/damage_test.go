package wal

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// threeSegments returns a log of three segments, closed, and the offsets at
// which the frames of each end.
func threeSegments(t *testing.T) (f *fixture, ends map[uint64][]int64, want []string) {
	f = newFixture(t)
	w := f.open()
	ends = map[uint64][]int64{}
	for i := range 16 {
		r := rec(0, uint64(i+1), fmt.Sprintf("%0100d", i))
		want = append(want, show(r))
		end := put(t, w, r)[0]
		n := w.tail().number
		ends[n] = append(ends[n], end)
	}
	require.Len(t, ends, 3)
	require.NoError(t, w.Close())
	return f, ends, want
}

func segmentPath(n uint64) string { return path.Join(testDir, segmentName(n)) }

func damage(t *testing.T, err error) *DamageError {
	t.Helper()
	var d *DamageError
	require.ErrorAs(t, err, &d)
	return d
}

func TestBitFlipInTheMiddle(t *testing.T) {
	f, ends, _ := threeSegments(t)
	f.flip(2, ends[2][1]+40)
	err := f.openFails("the checksum of the records is wrong", "go on to offset")
	require.Equal(t, segmentPath(2), damage(t, err).File)
	require.Equal(t, ends[2][1], damage(t, err).Offset, "where the frame begins")
	require.ErrorContains(t, err, fmt.Sprintf("log segment %s is damaged at offset %d", segmentPath(2), ends[2][1]))
}

func TestBitFlipInTheLastSegmentIsNoTornTail(t *testing.T) {
	f, ends, _ := threeSegments(t)
	f.flip(3, ends[3][0]+40)
	err := f.openFails("the checksum of the records is wrong", "it is not a torn tail")
	require.Equal(t, &DamageError{segmentPath(3), ends[3][0], damage(t, err).Reason}, damage(t, err))
}

func TestAClosedLogProvesItsLastFrame(t *testing.T) {
	f, ends, _ := threeSegments(t)
	last := ends[3][len(ends[3])-2] // where the last frame begins
	f.flip(3, last+40)
	require.Equal(t, last, damage(t, f.openFails("not a torn tail")).Offset)
}

// DESIGN.md, "What the log can't prove by itself".
func TestAnUnprovenFrameIsTakenForTorn(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	ends := put(t, w, rec(0, 1, "one"), rec(0, 2, "two"))
	f.fs = f.fs.Restart()
	f.flip(1, ends[0]+30)
	f.open()
	require.Equal(t, []string{show(rec(0, 1, "one"))}, f.got)
	require.Equal(t, 1, f.logs.Len())
}

func TestTruncatedSegment(t *testing.T) {
	for _, segment := range []uint64{1, 2, 3} {
		f, ends, _ := threeSegments(t)
		f.truncate(segment, ends[segment][1]+11)
		err := f.openFails("the file is 3", "and was made 1024 bytes long")
		require.Equal(t, segmentPath(segment), damage(t, err).File)
		require.Equal(t, ends[segment][1]+11, damage(t, err).Offset)

		f.truncate(segment, 20)
		require.Equal(t, segmentPath(segment), damage(t, f.openFails("ends inside the segment head")).File)
		f.truncate(segment, 0)
		require.Equal(t, segmentPath(segment), damage(t, f.openFails("ends inside the segment head")).File)
	}
}

func TestZeroedRestOfASegment(t *testing.T) {
	f, ends, _ := threeSegments(t)
	_, err := f.file(2).WriteAt(make([]byte, 1024-ends[2][2]), ends[2][2])
	require.NoError(t, err)
	err = f.openFails("the checksum of the frame head is wrong", "go on to offset")
	require.Equal(t, &DamageError{segmentPath(2), ends[2][2], damage(t, err).Reason}, damage(t, err))
}

func TestMissingSegment(t *testing.T) {
	for segment, why := range map[uint64]string{
		2: "0000000000000001.wal and 0000000000000003.wal are there",
		3: "0000000000000002.wal was sealed",
	} {
		f, _, _ := threeSegments(t)
		require.NoError(t, f.fs.Remove(segmentPath(segment)))
		err := f.openFails("the file is missing", why)
		require.Equal(t, segmentPath(segment), damage(t, err).File)
	}
}

func TestMissingLog(t *testing.T) {
	f := newFixture(t)
	f.o.MustExist = true
	require.ErrorIs(t, f.openFails(testDir), ErrMissing)
	names, err := f.fs.List(testDir)
	require.NoError(t, err)
	require.Empty(t, names, "nothing was begun")
}

func TestExchangedSegments(t *testing.T) {
	f, _, _ := threeSegments(t)
	require.NoError(t, f.fs.Rename(segmentPath(1), testDir+"/x"))
	require.NoError(t, f.fs.Rename(segmentPath(2), segmentPath(1)))
	require.NoError(t, f.fs.Rename(testDir+"/x", segmentPath(2)))
	err := f.openFails("it is segment 2 under the name of 1")
	require.Equal(t, segmentPath(1), damage(t, err).File)
}

// A segment of the same server and number from another time, a restored
// backup for example, doesn't fit the segments before and after it.
func TestASegmentOfAnotherHistory(t *testing.T) {
	f, _, _ := threeSegments(t)
	other := newFixture(t)
	w := other.open()
	for i := range 16 {
		put(t, w, rec(0, uint64(i+1), fmt.Sprintf("%0100d", i+1)))
	}
	b := make([]byte, 1024)
	_, err := other.file(2).ReadAt(b, 0)
	require.NoError(t, err)
	_, err = f.file(2).WriteAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, segmentPath(1), damage(t, f.openFails("segment 2 does not continue it")).File)
}

func TestForeignMetadata(t *testing.T) {
	f, _, _ := threeSegments(t)
	f.o.Metadata = []byte("cluster 1, server 3")
	err := f.openFails(segmentPath(1), `"cluster 1, server 2"`, `"cluster 1, server 3"`)
	require.ErrorIs(t, err, ErrMetadataMismatch)
	f.o.Metadata = []byte("cluster 1, server 2")
	f.open()
}

func TestAnotherVersion(t *testing.T) {
	f, _, _ := threeSegments(t)
	_, err := f.file(1).WriteAt([]byte{9}, 7)
	require.NoError(t, err)
	f.openFails(segmentPath(1), "not a segment of this version", `stoawal\t`)
}

func TestTornTailIsCutAndLogged(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	ends := put(t, w, rec(0, 1, "one"))
	require.NoError(t, w.Append([]Record{rec(0, 2, strings.Repeat("x", 300))}))
	f.fs = f.fs.Restart()
	_, err := f.file(1).WriteAt(make([]byte, 100), ends[0]+200)
	require.NoError(t, err)

	w = f.open()
	require.Equal(t, []string{show(rec(0, 1, "one"))}, f.got)
	require.Equal(t, 1, f.logs.Len())
	fields := f.logs.All()[0].ContextMap()
	require.Equal(t, segmentPath(1), fields["file"])
	require.Equal(t, ends[0], fields["offset"])
	require.Equal(t, "the checksum of the records is wrong", fields["found"])

	put(t, w, rec(0, 2, "again"))
	f.restart()
	require.Equal(t, shows([]Record{rec(0, 1, "one"), rec(0, 2, "again")}), f.got)
	require.Equal(t, 1, f.logs.Len(), "the tail was cut once and for all")
}

func TestAnUnfinishedSegmentIsRemoved(t *testing.T) {
	f, _, want := threeSegments(t)
	file, err := f.fs.Create(segmentPath(4) + tempSuffix)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.open()
	require.Equal(t, want, f.got)
	names, err := f.fs.List(testDir)
	require.NoError(t, err)
	require.NotContains(t, names, segmentName(4)+tempSuffix)
}

// Every single byte of the log is damaged once. Open must either name the
// file and a place at or before the damage, or succeed with nothing lost; in
// padding and behind the end there is nothing to lose.
func TestEveryByte(t *testing.T) {
	refused := 0
	for segment := uint64(1); segment <= 3; segment++ {
		for at := range int64(1024) {
			f, ends, want := threeSegments(t)
			f.flip(segment, at)
			_, err := f.tryOpen()
			if err == nil {
				require.Equal(t, want, f.got, "segment %d, byte %d", segment, at)
				continue
			}
			d := damage(t, err)
			used := ends[segment][len(ends[segment])-1] + frameHeadBytes
			require.LessOrEqual(t, at, used, "segment %d: %v", segment, err)
			require.Equal(t, segmentPath(segment), d.File, "byte %d: %v", at, err)
			require.LessOrEqual(t, d.Offset, at)
			refused++
		}
	}
	t.Logf("%d bytes, %d logs refused", 3*1024, refused)
}

func TestUnwritableDirectory(t *testing.T) {
	f := newFixture(t)
	f.fs.Inject(func(op vfs.Op, name string) error {
		if op != vfs.OpMkdir {
			return syscall.EACCES
		}
		return nil
	})
	require.ErrorIs(t, f.openFails(testDir+"/LOCK", "permission denied"), os.ErrPermission)

	if os.Geteuid() == 0 {
		t.Log("root may write everywhere; the rest needs another user")
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err := Open(Options{Dir: dir}, nil)
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, dir)
}

// failing makes op fail on names with the suffix from now on.
func (f *fixture) failing(op vfs.Op, suffix string, err error) {
	f.fs.Inject(func(o vfs.Op, name string) error {
		if o == op && strings.HasSuffix(name, suffix) {
			return err
		}
		return nil
	})
}

func TestAnErrorIsPermanent(t *testing.T) {
	big := rec(0, 3, strings.Repeat("x", 2000))
	small := rec(0, 3, "three")
	for name, c := range map[string]struct {
		op     vfs.Op
		suffix string
		cause  error
		recs   []Record
		says   string
	}{
		"disk full at a write":           {vfs.OpWrite, ".wal", syscall.ENOSPC, []Record{small}, "writing 40 bytes at offset 128 of " + segmentPath(1)},
		"disk full at a new segment":     {vfs.OpPreallocate, ".wal.tmp", syscall.ENOSPC, []Record{big}, "continuing after segment " + segmentPath(1)},
		"sync error":                     {vfs.OpSync, ".wal", syscall.EIO, []Record{small}, "syncing " + segmentPath(1) + " up to offset 168"},
		"sync error before a rotation":   {vfs.OpSync, "1.wal", syscall.EIO, []Record{small, big}, "syncing " + segmentPath(1)},
		"sync error of a new segment":    {vfs.OpSync, "2.wal.tmp", syscall.EIO, []Record{big}, "creating log segment " + segmentPath(2)},
		"rename error of a new segment":  {vfs.OpRename, ".wal.tmp", syscall.EIO, []Record{big}, "creating log segment " + segmentPath(2)},
		"sync error of the directory":    {vfs.OpSyncDir, "", syscall.EIO, []Record{big}, "creating log segment " + segmentPath(2)},
		"disk full at creating the file": {vfs.OpCreate, "", syscall.ENOSPC, []Record{big}, "creating log segment"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			w := f.open()
			put(t, w, rec(0, 1, "one"), rec(0, 2, "two"))
			f.failing(c.op, c.suffix, c.cause)
			var err error
			for _, r := range c.recs {
				if err == nil {
					err = w.Append([]Record{r})
				}
			}
			if err == nil {
				err = w.Sync()
			}
			require.ErrorIs(t, err, c.cause)
			require.ErrorContains(t, err, c.says)

			f.fs.Inject(nil)
			require.Equal(t, err, w.Append(c.recs), "the first error is the last word")
			require.Equal(t, err, w.Sync())
			require.Equal(t, err, w.Release(needs(9)))
			require.ErrorIs(t, w.Close(), c.cause)

			f.restart()
			require.Equal(t, shows([]Record{rec(0, 1, "one"), rec(0, 2, "two")}), f.got[:2])
		})
	}
}

// The page cache of a machine whose disk has failed once shows data that the
// disk doesn't have. Open must not believe it.
func TestReplayedRecordsAreDurable(t *testing.T) {
	f := newFixture(t)
	w := f.open()
	put(t, w, rec(0, 1, "one"))
	require.NoError(t, w.Append([]Record{rec(0, 2, "two")}))
	f.failing(vfs.OpSync, "", errors.New("input/output error"))
	require.Error(t, w.Sync())

	f.fs = f.fs.Restart()
	f.open()
	seen := f.got
	for seed := range uint64(100) {
		after := &fixture{t: t, fs: f.fs.Crash(seeded(seed)), o: f.o}
		after.open()
		require.Equal(t, seen, after.got, "replayed once, replayed always")
	}
}
