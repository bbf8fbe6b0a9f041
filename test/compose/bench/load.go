package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// mix is what clients do.
type mix struct {
	reads   int    // percent of the requests
	local   [2]int // percent of the bursts that go to the own region's cluster, by region
	burst   int    // requests in a row to one cluster
	window  int    // requests under way at most
	clients [2]int // by region
	shared  bool   // what doesn't go to the own region's cluster goes to shared keys, not to the other region's
}

// keysEach is how many keys a client has in each cluster. They are in a directory of its
// own, as the data of one application instance would be.
const keysEach = 20

func key(cluster, region, client, i int) string {
	prefix := sharedPrefix
	if cluster != shared {
		prefix = "/" + names[cluster] + "/"
	}
	return fmt.Sprintf("%s%s%d/k%02d", prefix, names[region], client, i)
}

// shared stands for the keys of both regions where a cluster's number does for that cluster's.
const (
	shared       = len(names)
	sharedPrefix = "/all/"
)

// keysOf are all keys of a cluster.
func keysOf(p *plan, cluster int) []string {
	var all []string
	for r := range names {
		for c := range max(p.clients, slices.Max(p.loads)) {
			for i := range keysEach {
				all = append(all, key(cluster, r, c, i))
			}
		}
	}
	return all
}

// gauge tells clients when to record and when to stop.
type gauge struct {
	recording, stopped atomic.Bool
}

// worker drives one client.
type worker struct {
	region, number int
	client         *member
	rnd            *rand.Rand
	latencies      []time.Duration // of answers that came while the gauge recorded
}

// inflight is a request that waits for its answer.
type inflight struct {
	sent   time.Time
	answer func(context.Context) error
}

// run sends requests, at most a window of them without an answer, until the gauge stops
// it; and then waits for those that are under way.
func (w *worker) run(ctx context.Context, m mix, g *gauge) error {
	room := make(chan struct{}, m.window)
	flight := make(chan inflight, m.window)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var collector sync.WaitGroup
	collector.Go(func() {
		for f := range flight { // in the order in which they were sent, as answers come
			if err := f.answer(ctx); err != nil {
				cancel(fmt.Errorf("a request in the %s: %w", names[w.region], err))
			}
			if g.recording.Load() {
				w.latencies = append(w.latencies, time.Since(f.sent))
			}
			<-room
		}
	})
	cluster, left := 0, 0
	for ctx.Err() == nil && !g.stopped.Load() {
		if left == 0 {
			cluster, left = w.region, m.burst
			if w.rnd.IntN(100) >= m.local[w.region] {
				if cluster = 1 - w.region; m.shared {
					cluster = shared
				}
			}
		}
		left--
		k := key(cluster, w.region, w.number, w.rnd.IntN(keysEach))
		room <- struct{}{}
		f := inflight{sent: time.Now()}
		read := w.rnd.IntN(100) < m.reads
		w.client.asked(cluster, read)
		if read {
			f.answer = w.client.get(k)
		} else {
			f.answer = w.client.put(k)
		}
		flight <- f
	}
	close(flight)
	collector.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
