package watch

import "sync/atomic"

type counters struct {
	streams, watchers, slow, events atomic.Int64
}

// Stats are the hub's counts.
type Stats struct {
	Streams  int64
	Watchers int64
	Slow     int64 // watchers that are behind
	Events   int64 // events delivered to watchers since the start
}

// Stats returns the hub's counts.
func (h *Hub) Stats() Stats {
	return Stats{
		Streams:  h.stats.streams.Load(),
		Watchers: h.stats.watchers.Load(),
		Slow:     h.stats.slow.Load(),
		Events:   h.stats.events.Load(),
	}
}
