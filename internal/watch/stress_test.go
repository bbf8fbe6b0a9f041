package watch

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

var stress = flag.Duration("stress", time.Second, "how long the stress test runs")

// Two apply loops publish while snapshots take partitions back and forward,
// replaced replicas still publish, and readers of both partitions open, lag,
// request progress and close. Every reader gets every revision once, in order,
// and no progress that leaves one out.
func TestStress(t *testing.T) {
	w := &publishers{journal: newJournal(2), applied: []int64{1, 1}, rev: 1}
	h := NewHub(2, w.journal.read, Options{RecentRevisions: 64, QueueResponses: 16, BatchEvents: 50})
	w.hub = h
	w.feeds = append(w.feeds, h.Reset([]int64{1, 1}, 0))
	ctx, cancel := context.WithCancel(context.Background())
	var background, loops, readers sync.WaitGroup
	background.Go(func() { h.Run(ctx) })
	var quiet atomic.Bool
	for p := range 2 {
		loops.Go(func() {
			for n := 0; !quiet.Load(); n++ {
				w.apply(p)
				if n%100 == 0 {
					time.Sleep(time.Millisecond) // the readers are to keep up on average
				}
			}
		})
	}
	loops.Go(func() {
		for !quiet.Load() {
			time.Sleep(rand.N(20 * time.Millisecond))
			w.install()
			w.repeatClosed()
		}
	})
	var goal, events atomic.Int64
	for range 12 {
		readers.Go(func() { events.Add(w.read(t, &goal)) })
	}
	time.Sleep(*stress)
	quiet.Store(true)
	loops.Wait()
	goal.Store(w.quiesce())
	readers.Wait()
	cancel()
	background.Wait()
	require.Zero(t, h.Stats().Watchers)
	t.Logf("%d revisions, %d events received, %d snapshots", w.rev, events.Load(), len(w.feeds)-1)
}

// publishers are the apply loops of one server.
type publishers struct {
	hub     *Hub
	journal *journal

	mu      sync.Mutex
	rev     int64
	log     [2][]store.Change // all that was ever written, by partition
	applied []int64           // of each partition
	feeds   []*Feed           // the last one is the present one's
}

func (w *publishers) feed() *Feed { return w.feeds[len(w.feeds)-1] }

// apply writes something to a partition, or applies again what a snapshot took back.
func (w *publishers) apply(p int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.again(p) {
		w.rev++
		c := put("k", w.rev, 0)
		w.log[p] = append(w.log[p], c)
		w.again(p)
	}
	if rand.IntN(4) == 0 {
		w.close()
	}
}

// again applies the next change that a partition has not applied.
func (w *publishers) again(p int) bool {
	done := len(w.journal.changes[p])
	if done == len(w.log[p]) {
		return false
	}
	c := w.log[p][done]
	w.journal.add(p, c)
	w.applied[p] = c.Main
	w.feed().Changes(p, c.Main, []store.Change{c})
	return true
}

// close advances the closed revisions: through everything, or up to the first
// revision still to apply.
func (w *publishers) close() {
	for p := range w.log {
		closed := w.rev
		if done := len(w.journal.changes[p]); done < len(w.log[p]) {
			closed = w.log[p][done].Main - 1
		}
		w.feed().Advance(p, closed)
	}
}

// install replaces the stores by what a snapshot holds: one partition may be behind.
func (w *publishers) install() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := rand.IntN(2)
	w.journal.mu.Lock() // the new stores are not read before the hub knows of them
	defer w.journal.mu.Unlock()
	keep := max(0, len(w.journal.changes[p])-rand.IntN(30))
	w.journal.changes[p] = w.journal.changes[p][:keep:keep]
	if w.applied[p] = 1; keep > 0 {
		w.applied[p] = w.log[p][keep-1].Main
	}
	both := func(_, _ []byte) placement.Set { return placement.Of(0) | placement.Of(1) }
	w.feeds = append(w.feeds, w.hub.Install(both, false, append([]int64(nil), w.applied...), 0))
}

// repeatClosed repeats a closed revision of a replica that was replaced.
func (w *publishers) repeatClosed() {
	w.mu.Lock()
	rev, n := w.rev, len(w.feeds)
	w.mu.Unlock()
	if n > 1 {
		w.feeds[n-2].Advance(rand.IntN(2), rev)
	}
}

func (w *publishers) quiesce() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.log {
		for w.again(p) {
		}
	}
	w.close()
	return w.rev
}

func (w *publishers) read(t *testing.T, goal *atomic.Int64) (events int64) {
	for next := int64(2); goal.Load() == 0 || next <= goal.Load(); {
		s := w.hub.NewStream("")
		s.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: next})
		for range 1 + rand.IntN(200) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			r, err := s.Recv(ctx)
			cancel()
			if err != nil {
				break
			}
			for _, e := range r.Events {
				if e.Kv.ModRevision != next {
					t.Errorf("revision %d comes in the place of %d", e.Kv.ModRevision, next)
					next = e.Kv.ModRevision
				}
				next++
				events++
			}
			if len(r.Events) == 0 && !r.Created && r.Header.Revision >= next {
				t.Errorf("progress %d before revision %d", r.Header.Revision, next)
			}
			switch rand.IntN(20) {
			case 0:
				time.Sleep(rand.N(5 * time.Millisecond))
			case 1:
				s.RequestProgress()
			}
		}
		s.Close()
	}
	return events
}
