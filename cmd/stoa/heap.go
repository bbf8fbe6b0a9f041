package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go lets a heap double before it collects it, and so a server with a million keys
// would take twice what they need. Most of a large heap are values, which hold no
// pointers and are cheap to mark: it may grow by less.
const (
	headroom   = 256 << 20 // bytes by which a heap may grow, if that is less than double
	leastGrows = 50        // percent: the largest heap grows by that
	defaultGC  = 100       // percent, Go's own
)

// growth is by how many percent a heap with so much alive may grow until it is
// collected. It goes in steps of ten: to set it stops the world for a moment.
func growth(live uint64) int {
	if live <= headroom {
		return defaultGC
	}
	return max(leastGrows, int(headroom*10/live)*10)
}

// tendHeap adjusts the collector to the heap, unless the environment (GOGC) has said
// what it should be.
func tendHeap(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for set := defaultGC; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(live)
		if g := growth(live[0].Value.Uint64()); g != set {
			debug.SetGCPercent(g)
			set = g
		}
	}
}
