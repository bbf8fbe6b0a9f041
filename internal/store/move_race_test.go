package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// pair is two stores between which ten keys move. Revision r writes key r mod 10.
type pair struct {
	be     *backend.Backend
	stores []*store.Store
	homes  [10]int
	rev    int64
	moves  atomic.Int64
	reads  atomic.Int64
}

func (p *pair) locked(fn func()) {
	for _, s := range p.stores {
		s.Lock()
		defer s.Unlock()
	}
	fn()
}

func (p *pair) rlocked(fn func()) {
	for _, s := range p.stores {
		s.RLock()
		defer s.RUnlock()
	}
	fn()
}

func (p *pair) write() {
	p.locked(func() {
		p.rev++
		key := fmt.Appendf(nil, "k%d", p.rev%10)
		p.stores[p.homes[p.rev%10]].Put(store.Revision{Main: p.rev}, key, fmt.Append(nil, p.rev), 0)
	})
}

func (p *pair) move() {
	p.locked(func() {
		n := rand.IntN(10)
		p.homes[n] = 1 - p.homes[n]
		store.Move(p.stores, []byte("k"), []byte("l"), store.Route{To: func(key []byte) (int, []byte) { return p.homes[key[1]-'0'], nil }}, nil)
		p.moves.Add(1)
	})
	time.Sleep(50 * time.Microsecond)
}

func (p *pair) flush() {
	cut := backend.Cut{}
	p.locked(func() {
		for _, s := range p.stores {
			cut.Partitions = append(cut.Partitions, s.Cut())
		}
		if rev := p.rev - 500; rand.IntN(10) == 0 && rev > p.stores[0].Compacted() {
			for _, s := range p.stores {
				s.Compact(rev)
			}
		}
	})
	if err := p.be.Flush(&cut); err != nil {
		panic(err)
	}
	for i, s := range p.stores {
		s.Release(cut.Partitions[i])
	}
}

// read reads all keys at an old revision.
func (p *pair) read() {
	var rev int64
	found := make([]store.Found, 2)
	var failed error
	p.rlocked(func() {
		rev = max(1, p.rev-rand.Int64N(700))
		for i, s := range p.stores {
			var err error
			found[i], err = s.Range([]byte("k"), []byte("l"), rev, 0)
			failed = errors.Join(failed, err)
		}
	})
	n := 0
	for i, s := range p.stores {
		if failed = errors.Join(failed, s.Resolve(&found[i])); errors.Is(failed, fault.Compacted) {
			return
		}
		for _, kv := range found[i].Kvs {
			k := int64(kv.Key()[1] - '0')
			if want := rev - (rev-k+10)%10; kv.ModRevision() != want || string(kv.Value()) != fmt.Sprint(want) {
				panic(fmt.Sprintf("at %d: %v, want revision %d", rev, kv, want))
			}
			n++
		}
	}
	if failed != nil || rev > 20 && n != 10 {
		panic(fmt.Sprintf("at %d: %d keys, %v", rev, n, failed))
	}
	p.reads.Add(1)
}

// changes reads what both stores say has happened, unless keys move meanwhile.
func (p *pair) changes() {
	moves := p.moves.Load()
	var from, to int64
	p.rlocked(func() { to = p.rev; from = max(2, to-rand.Int64N(300)) })
	seen := map[int64]int{}
	for _, s := range p.stores {
		cs, through, err := s.Changes([]byte("k"), []byte("l"), from, to, store.Bounds{}, false)
		if errors.Is(err, fault.Compacted) {
			return
		}
		if err != nil || through > to {
			panic(fmt.Sprint(through, err))
		}
		to = through
		for _, c := range cs {
			seen[c.Main]++
		}
	}
	if p.moves.Load() != moves {
		return
	}
	for rev := from; rev <= to; rev++ {
		if seen[rev] != 1 {
			panic(fmt.Sprintf("revision %d of %d to %d came %d times", rev, from, to, seen[rev]))
		}
	}
}

func TestConcurrentMoves(t *testing.T) {
	p := &pair{be: backend.NewMem(backend.Identity{Cluster: 1, Partitions: 2}), rev: 1}
	for range 2 {
		s := store.New(p.be)
		s.Tighten()
		p.stores = append(p.stores, s)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, fn := range []func(){p.write, p.move, p.flush, p.read, p.changes} {
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
	time.Sleep(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	require.Positive(t, p.reads.Load())
	require.Positive(t, p.moves.Load())
}
