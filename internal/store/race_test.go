package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// TestConcurrent runs a writer, the flusher and readers of old revisions at
// once. Every revision puts one key of ten to its own number, so a reader knows
// what any state must look like: at revision r, key k has the largest number
// up to r that ends in k.
func TestConcurrent(t *testing.T) {
	be := backend.NewMem(backend.Identity{Cluster: 1, Partitions: 1})
	s := store.New(be)
	s.Tighten()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	run := func(fn func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					fn()
				}
			}
		})
	}
	run(func() {
		s.Lock()
		rev := s.Rev() + 1
		s.Put(store.Revision{Main: rev}, fmt.Appendf(nil, "k%d", rev%10), fmt.Append(nil, rev), 0)
		s.Unlock()
	})
	run(func() {
		s.Lock()
		cut := s.Cut()
		if rev := s.Rev() - 500; rand.IntN(10) == 0 && rev > s.Compacted() {
			s.Compact(rev)
		}
		s.Unlock()
		if err := be.Flush(&backend.Cut{Partitions: []store.Cut{cut}}); err != nil {
			panic(err)
		}
		s.Release(cut)
	})
	reads := 0
	run(func() {
		s.RLock()
		now := s.Rev()
		rev := max(1, now-rand.Int64N(700))
		f, err := s.Range([]byte("k"), []byte("l"), rev, 0)
		s.RUnlock()
		if err == nil {
			err = s.Resolve(&f)
		}
		if errors.Is(err, fault.Compacted) {
			return
		}
		if err != nil {
			panic(err)
		}
		for _, kv := range f.Kvs {
			k := int64(kv.Key()[1] - '0')
			if want := rev - (rev-k+10)%10; kv.ModRevision() != want || string(kv.Value()) != fmt.Sprint(want) {
				panic(fmt.Sprintf("at %d: %v, want revision %d", rev, kv, want))
			}
		}
		reads++
	})
	run(func() {
		s.RLock()
		now := s.Rev()
		s.RUnlock()
		from := max(2, now-rand.Int64N(700))
		cs, through, err := s.Changes([]byte("k"), []byte("l"), from, now, store.Bounds{Changes: 50}, true)
		if errors.Is(err, fault.Compacted) {
			return
		}
		if err != nil {
			panic(err)
		}
		for i, c := range cs {
			// At exactly the compaction revision there is no Prev.
			wrong := !c.Prev.Exists() && i > 0 || c.Prev.Exists() && c.Prev.ModRevision() != c.Main-10
			if c.Main != from+int64(i) || from > 20 && wrong {
				panic(fmt.Sprintf("change %d from %d: %v after %v", i, from, c.Kv, c.Prev))
			}
		}
		if int64(len(cs)) != through-from+1 {
			panic(fmt.Sprintf("%d changes from %d through %d", len(cs), from, through))
		}
	})
	time.Sleep(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	require.Positive(t, reads)
}
