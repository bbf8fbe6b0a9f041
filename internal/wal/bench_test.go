package wal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// One round of the writer: the pending records of all groups, appended as one
// frame, then one sync.
func BenchmarkAppendSync(b *testing.B) {
	for _, c := range []struct{ groups, size int }{
		{1, 300}, {1, 3 << 10}, {1, 16 << 10}, {1, 64 << 10}, {1, 256 << 10}, {8, 300}, {64, 300},
	} {
		b.Run(fmt.Sprintf("groups=%d/bytes=%d", c.groups, c.size), func(b *testing.B) {
			benchmarkAppend(b, c.groups, c.size, true)
		})
	}
}

// The CPU cost of a frame.
func BenchmarkAppend(b *testing.B) {
	for _, groups := range []int{1, 64} {
		b.Run(fmt.Sprintf("groups=%d/bytes=300", groups), func(b *testing.B) {
			benchmarkAppend(b, groups, 300, false)
		})
	}
}

// BenchmarkShared is the writer's part of one write: rounds with one record from each of P groups,
// 2,048 writes together, each of a value of 8 or of 256 bytes. With the sync, and without: the
// disk's part is not the writer's.
func BenchmarkShared(b *testing.B) {
	const batch = 2048
	for _, sync := range []bool{false, true} {
		for _, value := range []int{8, 256} {
			for _, groups := range []int{1, 2, 4, 8, 16} {
				b.Run(fmt.Sprintf("sync=%v/value=%d/P=%d", sync, value, groups), func(b *testing.B) {
					w, err := Open(Options{Dir: b.TempDir()}, func(Record) error { return nil })
					require.NoError(b, err)
					recs := make([]Record, groups)
					data := make([]byte, batch/groups*(value+48)) // the key, and what the entry says of it
					b.ResetTimer()
					for i := range (b.N + batch - 1) / batch {
						for g := range recs {
							recs[g] = Record{Group: uint32(g), Kind: 16, Index: uint64(i + 1), Note: 1, Data: data}
						}
						require.NoError(b, w.Append(recs))
						if sync {
							require.NoError(b, w.Sync())
						}
						if w.Segments() > 2 {
							b.StopTimer()
							require.NoError(b, w.Release(needs(make([]uint64, groups)...)))
							b.StartTimer()
						}
					}
					b.StopTimer()
					require.NoError(b, w.Close())
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, groups, size int, sync bool) {
	w, err := Open(Options{Dir: b.TempDir()}, func(Record) error { return nil })
	require.NoError(b, err)
	recs := make([]Record, groups)
	data := make([]byte, size)
	b.SetBytes(int64(groups * size))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for g := range recs {
			recs[g] = Record{Group: uint32(g), Kind: 16, Index: uint64(i + 1), Note: 1, Data: data}
		}
		if err := w.Append(recs); err != nil {
			b.Fatal(err)
		}
		if !sync {
			if w.Segments() > 2 { // the disk isn't measured
				require.NoError(b, w.Release(needs(make([]uint64, groups)...)))
			}
			continue
		}
		if err := w.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	require.NoError(b, w.Close())
}

// The time to open a log of 256 MiB, and an empty one, whose cost is the
// reading of a preallocated segment.
func BenchmarkRecovery(b *testing.B) {
	for _, total := range []int{0, 256 << 20} {
		b.Run(fmt.Sprintf("MiB=%d", total>>20), func(b *testing.B) {
			o := Options{Dir: b.TempDir()}
			fill(b, o, total)
			b.SetBytes(int64(total))
			for b.Loop() {
				n := 0
				w, err := Open(o, func(r Record) error { n += len(r.Data); return nil })
				require.NoError(b, err)
				require.Equal(b, total, n)
				require.NoError(b, w.Close())
			}
		})
	}
}

func fill(b *testing.B, o Options, total int) {
	w, err := Open(o, func(Record) error { return nil })
	require.NoError(b, err)
	recs := make([]Record, 64)
	for i := range recs {
		recs[i] = Record{Group: uint32(i), Kind: 16, Index: 1, Data: make([]byte, 512)}
	}
	for done := 0; done < total; done += 64 * 512 {
		require.NoError(b, w.Append(recs))
	}
	require.NoError(b, w.Close())
}

// How long a rotation holds the writer up.
func BenchmarkRotate(b *testing.B) {
	w, err := Open(Options{FS: vfs.OS(), Dir: b.TempDir()}, func(Record) error { return nil })
	require.NoError(b, err)
	for b.Loop() {
		if _, err := w.rotate(0); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		require.NoError(b, w.Release(needs(0)))
		b.StartTimer()
	}
	require.NoError(b, w.Close())
}
