package store_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stoa-kv/stoa/internal/store"
)

const benchKeys = 1_000_000

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/ns-%03d/pod-%08d", i%500, i) }

// filled returns a store of benchKeys keys of 256 bytes that History holds.
func filled(b *testing.B) (*store.Store, int64) {
	s, rev := fill()
	b.ResetTimer()
	b.ReportAllocs()
	return s, rev
}

func fill() (*store.Store, int64) {
	s, rev := store.New(nil), int64(1)
	for i := range benchKeys {
		rev++
		s.Put(store.Revision{Main: rev}, benchKey(i), make([]byte, 256), 0)
		if i%10_000 == 0 {
			s.Release(s.Cut())
		}
	}
	s.Release(s.Cut())
	return s, rev
}

func shuffled(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = benchKey(rand.IntN(benchKeys))
	}
	return keys
}

func BenchmarkPutOverwrite(b *testing.B) {
	keys, value := shuffled(1<<16), make([]byte, 256)
	s, rev := filled(b)
	for i := 0; b.Loop(); i++ {
		rev++
		s.Put(store.Revision{Main: rev}, keys[i%len(keys)], value, 0)
		if i%10_000 == 0 { // as the flusher and a compaction every so often would
			s.Compact(rev)
			s.Release(s.Cut())
		}
	}
}

func BenchmarkPutNew(b *testing.B) {
	s, rev := store.New(nil), int64(1)
	value := make([]byte, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rev++
		s.Put(store.Revision{Main: rev}, benchKey(i), value, 0)
		if i%10_000 == 0 {
			s.Release(s.Cut())
		}
	}
}

func BenchmarkGet(b *testing.B) {
	keys := shuffled(1 << 16)
	s, _ := filled(b)
	for i := 0; b.Loop(); i++ {
		// With a look at what is found: not before that have all cache misses been paid.
		if kv := s.Get(keys[i%len(keys)]); kv.ModRevision() == 0 || kv.Value()[0] != 0 {
			b.Fatal("missing")
		}
	}
}

func benchRange(b *testing.B, key, end []byte, limit int, past int64) {
	s, rev := filled(b)
	if past > 0 {
		rev -= past
	} else {
		rev = 0
	}
	for b.Loop() {
		s.RLock()
		f, err := s.Range(key, end, rev, limit)
		s.RUnlock()
		if err != nil || f.Count == 0 {
			b.Fatal(f.Count, err)
		}
	}
}

// 100 keys of a directory of 2,000; the rest is counted by rank.
func BenchmarkRange100(b *testing.B) {
	benchRange(b, []byte("/registry/pods/ns-250/"), []byte("/registry/pods/ns-2500"), 100, 0)
}

// 100 keys of a million.
func BenchmarkRange100OfAll(b *testing.B) { benchRange(b, []byte("/"), []byte{0}, 100, 0) }

func BenchmarkRange2000(b *testing.B) {
	benchRange(b, []byte("/registry/pods/ns-250/"), []byte("/registry/pods/ns-2500"), 0, 0)
}

// As a strict read over several partitions does: a revision just behind.
func BenchmarkRange2000JustBehind(b *testing.B) {
	benchRange(b, []byte("/registry/pods/ns-250/"), []byte("/registry/pods/ns-2500"), 0, 10)
}

// BenchmarkMemory reports what a key of 30 and a value of 256 bytes cost.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, _ := fill()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/benchKeys, "B/key")
		runtime.KeepAlive(s)
	}
}
