package watch

import (
	"context"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/store"
)

// BenchmarkPublish is what an apply loop pays.
func BenchmarkPublish(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) {
			h := NewHub(1, newJournal(1).read, Options{})
			f := h.Reset([]int64{0}, 0)
			if watched {
				s := h.NewStream("")
				s.Create(&pb.WatchCreateRequest{Key: []byte("x")})
				_, _, _ = s.TryRecv()
			}
			c := []store.Change{put("key", 1, 0)}
			b.ReportAllocs()
			for i := range b.N {
				f.Changes(0, int64(i+1), c)
			}
		})
	}
}

// BenchmarkShared is the hub's part of one write: P loops publish, and its goroutine looks for who
// watches: nobody, or a watcher of other keys. BenchmarkDeliver is what an event costs beyond that.
func BenchmarkShared(b *testing.B) {
	for _, watched := range []string{"nothing", "other"} {
		for _, partitions := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("watched=%s/P=%d", watched, partitions), func(b *testing.B) {
				h := NewHub(partitions, newJournal(partitions).read, Options{})
				f := h.Reset(make([]int64, partitions), 0)
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				running.Go(func() { h.Run(ctx) })
				writes := b.N / partitions
				if watched == "other" {
					s := h.NewStream("")
					s.Create(&pb.WatchCreateRequest{Key: []byte("x")})
					_, _, _ = s.TryRecv()
				}
				var loops sync.WaitGroup
				b.ResetTimer()
				for p := range partitions {
					loops.Go(func() {
						for i := range writes {
							rev := int64(i*partitions + p + 1)
							f.Changes(p, rev, []store.Change{put("key", rev, 0)})
							f.Advance(p, rev)
						}
						f.Advance(p, int64(writes*partitions))
					})
				}
				loops.Wait()
				for h.Shown() < int64(writes*partitions) {
					h.Step()
				}
				b.StopTimer()
				cancel()
				running.Wait()
			})
		}
	}
}

// BenchmarkDeliver is one change to n watchers, received by all of them.
func BenchmarkDeliver(b *testing.B) {
	for _, form := range []string{"key", "range"} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/watchers=%d", form, n), func(b *testing.B) {
				h := NewHub(1, newJournal(1).read, Options{})
				f := h.Reset([]int64{1}, 0)
				streams := make([]*Stream, n)
				for i := range streams {
					streams[i] = h.NewStream("")
					r := &pb.WatchCreateRequest{Key: []byte("key")}
					if form == "range" {
						r.RangeEnd = []byte("kez")
					}
					streams[i].Create(r)
					_, _, _ = streams[i].TryRecv()
				}
				b.ReportAllocs()
				for i := range b.N {
					rev := int64(i + 2)
					f.Changes(0, rev, []store.Change{put("key", rev, 0)})
					h.Step()
					for _, s := range streams {
						if _, ok, _ := s.TryRecv(); !ok {
							b.Fatal("nothing received")
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
			})
		}
	}
}

// BenchmarkMatch finds one of many watchers for a key.
func BenchmarkMatch(b *testing.B) {
	x := newIndex()
	for i := range 10_000 {
		k := fmt.Sprintf("/registry/%05d/", i)
		w := newWatcher(nil, &pb.WatchCreateRequest{Key: []byte(k), RangeEnd: []byte(k[:len(k)-1] + "0")})
		x.add(w)
	}
	key := []byte("/registry/05000/pod")
	var found []*watcher
	b.ReportAllocs()
	for b.Loop() {
		found = x.match(found[:0], key)
	}
	if len(found) != 1 {
		b.Fatal(found)
	}
}
