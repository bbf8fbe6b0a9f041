package backend_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

const benchKeys = 1_000_000

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/ns-%03d/pod-%08d", i%500, i) }

func benchRoute(p int) func([]byte) int {
	return func(key []byte) int { return int(key[len(key)-1]) % p }
}

func stores(p int, be *backend.Backend) []*store.Store {
	s := make([]*store.Store, p)
	for i := range s {
		s[i] = store.New(be)
	}
	return s
}

func flush(tb testing.TB, be *backend.Backend, s []*store.Store) {
	cut := &backend.Cut{}
	for _, s := range s {
		cut.Partitions = append(cut.Partitions, s.Cut())
	}
	require.NoError(tb, be.Flush(cut))
	for i, s := range s {
		s.Release(cut.Partitions[i])
	}
}

// BenchmarkFlush makes 5,000 puts of 256 bytes durable, about the load of 100
// ms on a busy server.
func BenchmarkFlush(b *testing.B) {
	id := backend.Identity{Cluster: 1, Server: 1, Partitions: 2}
	be, err := backend.Open(filepath.Join(b.TempDir(), "db"), backend.Options{Identity: id})
	require.NoError(b, err)
	defer be.Close()
	s, rev := stores(2, be), int64(1)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range 5_000 {
			rev++
			s[i%2].Put(store.Revision{Main: rev}, benchKey(rand.IntN(100_000)), make([]byte, 256), 0)
		}
		b.StartTimer()
		flush(b, be, s)
	}
}

// BenchmarkShared is the flush's part of one put: cuts of P stores with 20,000 puts together, of
// 10,000 keys, with values of 8 or 256 bytes.
func BenchmarkShared(b *testing.B) {
	const batch, keys = 20_000, 10_000
	for _, value := range []int{8, 256} {
		for _, p := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("value=%d/P=%d", value, p), func(b *testing.B) {
				id := backend.Identity{Cluster: 1, Server: 1, Partitions: p}
				be, err := backend.Open(filepath.Join(b.TempDir(), "db"), backend.Options{Identity: id})
				require.NoError(b, err)
				defer be.Close()
				s, rev := stores(p, be), int64(1)
				b.ResetTimer()
				for done := 0; done < b.N; done += batch {
					b.StopTimer()
					for range batch {
						rev++
						k := rand.IntN(keys)
						s[k%p].Put(store.Revision{Main: rev}, benchKey(k), make([]byte, value), 0)
					}
					b.StartTimer()
					flush(b, be, s)
				}
			})
		}
	}
}

// BenchmarkLoad starts from a file with a million keys of 256 bytes, each
// written 1.2 times.
func BenchmarkLoad(b *testing.B) {
	for _, p := range []int{1, 2} {
		b.Run(fmt.Sprint("P=", p), func(b *testing.B) {
			id := backend.Identity{Cluster: 1, Server: 1, Partitions: p}
			path := filepath.Join(b.TempDir(), "db")
			be, err := backend.Open(path, backend.Options{Identity: id, NoSync: true})
			require.NoError(b, err)
			s, rev := stores(p, be), int64(1)
			for i := range benchKeys * 12 / 10 {
				rev++
				key := benchKey((i * 7919) % benchKeys)
				s[benchRoute(p)(key)].Put(store.Revision{Main: rev}, key, make([]byte, 256), 0)
				if i%20_000 == 0 {
					flush(b, be, s)
				}
			}
			flush(b, be, s)
			size := be.Size()
			require.NoError(b, be.Close())
			s, be = nil, nil
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				be, err = backend.Open(path, backend.Options{})
				require.NoError(b, err)
				s = stores(p, be)
				require.NoError(b, be.Load(s, benchRoute(p), nil))
				b.StopTimer()
				require.NoError(b, be.Close())
				b.StartTimer()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/benchKeys, "B/key")
			b.ReportMetric(float64(size)/(1<<20), "MiB-file")
			runtime.KeepAlive(s)
		})
	}
}

// BenchmarkOpen is the check of the structure and what bbolt does itself.
func BenchmarkOpen(b *testing.B) {
	id := backend.Identity{Cluster: 1, Server: 1, Partitions: 1}
	path := filepath.Join(b.TempDir(), "db")
	be, err := backend.Open(path, backend.Options{Identity: id, NoSync: true})
	require.NoError(b, err)
	s := stores(1, be)
	for i := range benchKeys {
		s[0].Put(store.Revision{Main: int64(i + 2)}, benchKey(i), make([]byte, 256), 0)
		if i%20_000 == 0 {
			flush(b, be, s)
		}
	}
	flush(b, be, s)
	require.NoError(b, be.Close())
	for b.Loop() {
		be, err := backend.Open(path, backend.Options{})
		require.NoError(b, err)
		require.NoError(b, be.Close())
	}
}
