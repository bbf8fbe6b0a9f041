package load

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Window is the time constant of the decay: of a load that ends, a third is left after it. The
// balancer has to know a new load after two seconds (package balance).
const Window = 700 * time.Millisecond

// Meter measures. The zero value is ready. All methods may be called from any goroutine.
type Meter struct {
	loops   [placement.MaxPartitions]loop
	weights [placement.Slots]atomic.Int64 // of samples since the last Fold

	mu     sync.Mutex
	folded int64 // when, by the clock of Fold
	slots  [placement.Slots]float64
}

// loop is that of one partition.
type loop struct {
	worked atomic.Int64 // nanoseconds since the start

	mu  sync.Mutex
	hot sketch

	// With Meter.mu held.
	seen int64   // of worked
	rest float64 // the load that no sample explains
	work float64 // the decayed weights of samples, per second
}

// Worked adds to the time that a partition's loop has worked.
func (m *Meter) Worked(partition int, nanoseconds int64) {
	m.loops[partition].worked.Add(nanoseconds)
}

// Time is how long a partition's loop has worked since the start.
func (m *Meter) Time(partition int) time.Duration {
	return time.Duration(m.loops[partition].worked.Load())
}

// Sample notes a command, or several like it that its weight stands for, which concerns a key at
// a spot.
func (m *Meter) Sample(at *placement.Spot, weight int64) {
	m.weights[at.Slot].Add(weight)
	l := &m.loops[at.Partition]
	l.mu.Lock()
	l.hot.add(at.Hash, at.Prefix, float64(weight))
	l.mu.Unlock()
}

// Fold takes what has come since the last call into the decayed loads. now is in nanoseconds of
// a clock that never goes back; where says in which partitions the slots are.
func (m *Meter) Fold(now int64, where *placement.Map) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := float64(now - m.folded)
	if elapsed <= 0 {
		return
	}
	m.folded = now
	keep := math.Exp(-elapsed / float64(Window))
	var weights [placement.Slots]float64
	var sums, busy [placement.MaxPartitions]float64
	table := where.Table()
	for s := range weights {
		weights[s] = float64(m.weights[s].Swap(0))
		sums[table[s]] += weights[s]
	}
	for p := range where.Partitions() {
		l := &m.loops[p]
		worked := l.worked.Load()
		busy[p] = min(1, float64(worked-l.seen)/elapsed)
		l.seen = worked
		rest := busy[p]
		if sums[p] > 0 {
			rest = 0
		}
		l.rest = keep*l.rest + (1-keep)*rest
		l.work = keep*l.work + (1-keep)*sums[p]*1e9/elapsed
		l.mu.Lock()
		l.hot.decay(keep)
		l.mu.Unlock()
	}
	for s := range weights {
		now := 0.0
		if p := table[s]; sums[p] > 0 {
			now = busy[p] * weights[s] / sums[p]
		}
		m.slots[s] = keep*m.slots[s] + (1-keep)*now
	}
}

// Snapshot returns the load as of the last Fold, with the hottest prefixes of each partition.
func (m *Meter) Snapshot(where *placement.Map, hottest int) *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Snapshot{Slots: m.slots}
	for p := range where.Partitions() {
		s.Rest = append(s.Rest, m.loops[p].rest)
		s.Work = append(s.Work, m.loops[p].work)
	}
	for p, busy := range s.Loops(where) {
		l := &m.loops[p]
		l.mu.Lock()
		s.Hot = append(s.Hot, l.hot.top(hottest, busy-s.Rest[p]))
		l.mu.Unlock()
	}
	return s
}
