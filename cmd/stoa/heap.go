package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go lets a heap double before it collects it, and so a server would take twice what its keys
// need, however little it has to do. A collection costs time for what is alive, and what the
// heap may grow by until the next one is what spares that: as little as keeps the cost of
// collections at collectorShare, at the rate at which memory is used up, and no more than mostGrowth.
const (
	headroom       = 256 << 20 // bytes by which a heap may grow, if that is less than double
	leastGrows     = 50        // percent: the largest heap may grow by that
	defaultGC      = 100       // percent, Go's own
	leastHeadroom  = 8 << 20   // bytes by which any heap may grow
	leastPart      = 16        // and one of so many parts of what is alive
	collectorShare = 0.01      // of one core
	tendInterval   = 500 * time.Millisecond
	decay          = 0.95 // by which the room shrinks at each interval
	inertia        = 1.15 // a smaller change isn't made: it stops the world for a moment
)

// mostGrowth is by how many percent a heap with so much alive may grow at most.
func mostGrowth(live float64) float64 {
	if live <= headroom {
		return defaultGC
	}
	return max(leastGrows, headroom/live*100)
}

// heapSample is what the runtime says of the heap and of the collector, since the process began
// but for what is alive.
type heapSample struct {
	live      float64 // bytes, after the last collection
	allocated float64 // bytes
	cpu       float64 // seconds of all collections
	cycles    float64
}

// heapTender decides by how much the heap may grow.
type heapTender struct {
	last heapSample
	cost float64 // seconds of one collection, of the last ones more than of those before
	room float64 // bytes by which the heap may grow
	set  float64 // percent
}

// tend looks at the heap so long after the last time. It returns by how many percent the heap may
// grow, and whether that has changed.
func (h *heapTender) tend(s heapSample, since time.Duration) (percent int, changed bool) {
	d := heapSample{allocated: s.allocated - h.last.allocated, cpu: s.cpu - h.last.cpu, cycles: s.cycles - h.last.cycles}
	h.last = s
	if d.cycles > 0 {
		h.cost = (h.cost + d.cpu/d.cycles) / 2
	}
	rate := d.allocated / since.Seconds()
	h.room = max(h.room*decay, rate*h.cost/collectorShare, leastHeadroom, s.live/leastPart)
	h.room = min(h.room, max(s.live*mostGrowth(s.live)/100, leastHeadroom))
	if s.live == 0 { // there was no collection yet
		return defaultGC, false
	}
	p := h.room / s.live * 100
	if p < h.set*inertia && p > h.set/inertia {
		return int(h.set), false
	}
	h.set = math.Ceil(p)
	return int(h.set), true
}

// tendHeap adjusts the collector to the heap, unless the environment (GOGC) has said
// what it should be.
func tendHeap(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/gc/cycles/total:gc-cycles"}}
	h := &heapTender{set: defaultGC}
	ticker := time.NewTicker(tendInterval)
	defer ticker.Stop()
	for before := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(read)
		now := time.Now()
		s := heapSample{live: float64(read[0].Value.Uint64()), allocated: float64(read[1].Value.Uint64()),
			cpu: read[2].Value.Float64(), cycles: float64(read[3].Value.Uint64())}
		if percent, changed := h.tend(s, now.Sub(before)); changed {
			debug.SetGCPercent(percent)
		}
		before = now
	}
}
