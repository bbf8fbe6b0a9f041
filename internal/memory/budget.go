package memory

import (
	"sync/atomic"
	"time"
)

// What calls are taken to hold beside their requests, in bytes: goroutines, buffers, and what
// gRPC keeps of each.
const (
	PerCall   = 16 << 10
	PerStream = 32 << 10
)

// Parts of the limit.
const (
	most  = 4  // the budget is one of so many parts of the limit
	least = 16 // and this many at least, whatever the keys take
)

// Stripes is how many calls can be counted at once without writes to the same cache line.
const Stripes = 16

// Level is how much is refused.
type Level int32

const (
	// Open: nothing is.
	Open Level = iota
	// Full: the budget is used up. What serves to come out of that is not refused.
	Full
	// Over: twice the budget is used up. Everything new is refused.
	Over
)

// Budget counts what is in use by what can be refused. Its methods may be called by any number of
// goroutines.
type Budget struct {
	limit   int64
	room    atomic.Int64 // that may be in use now
	bytes   atomic.Int64 // of large requests and answers
	streams atomic.Int64
	calls   [Stripes]counter
	level   atomic.Int32
	refused atomic.Uint64
}

// counter is on a cache line of its own.
type counter struct {
	atomic.Int64
	_ [56]byte
}

// NewBudget returns the budget of a server with a limit, in bytes; nil if that is 0.
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		return nil
	}
	b := &Budget{limit: limit}
	b.room.Store(limit / most)
	return b
}

// Begin counts a call until End. The stripe is one of [Stripes], the same for both.
func (b *Budget) Begin(stripe uint32) {
	if b != nil {
		b.calls[stripe].Add(1)
	}
}

// End is the end of a call.
func (b *Budget) End(stripe uint32) {
	if b != nil {
		b.calls[stripe].Add(-1)
	}
}

// BeginStream counts a stream until EndStream.
func (b *Budget) BeginStream() {
	if b != nil {
		b.streams.Add(1)
	}
}

// EndStream is the end of a stream.
func (b *Budget) EndStream() {
	if b != nil {
		b.streams.Add(-1)
	}
}

// Take takes n bytes, to be given back, unless there is no room for them. What is larger than
// the budget may be taken while nothing else is.
func (b *Budget) Take(n int64) bool {
	if b == nil {
		return true
	}
	if used := b.bytes.Add(n); used > b.room.Load() && used > n {
		b.bytes.Add(-n)
		b.refused.Add(1)
		return false
	}
	return true
}

// Fits reports whether n bytes more could be taken.
func (b *Budget) Fits(n int64) bool {
	if b == nil {
		return true
	}
	if used := b.bytes.Load(); used+n > b.room.Load() && used > 0 {
		b.refused.Add(1)
		return false
	}
	return true
}

// Give gives back what was taken.
func (b *Budget) Give(n int64) {
	if b != nil && n != 0 {
		b.bytes.Add(-n)
	}
}

// Level is what was found at the last [Budget.Weigh].
func (b *Budget) Level() Level {
	if b == nil {
		return Open
	}
	return Level(b.level.Load())
}

// Refuse counts a refusal because of the level.
func (b *Budget) Refuse() { b.refused.Add(1) }

// Used is the bytes in use.
func (b *Budget) Used() int64 {
	calls := int64(0)
	for i := range b.calls {
		calls += b.calls[i].Load()
	}
	return b.bytes.Load() + calls*PerCall + b.streams.Load()*PerStream
}

// Room is the bytes that may be in use.
func (b *Budget) Room() int64 { return b.room.Load() }

// Refused is how often something was refused.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Limit is the server's, in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Weigh finds the level. live is what the last garbage collection found alive, in bytes, requests
// included.
func (b *Budget) Weigh(live int64) {
	used := b.Used()
	// Half of what is left, so that the collector has room to work. Of what is alive the
	// requests are a part, though perhaps others than those of now.
	left := b.limit - max(live-used, 0)
	room := max(min(b.limit/most, left/2), b.limit/least)
	b.room.Store(room)
	level := Open
	switch {
	case used > 2*room:
		level = Over
	case used > room:
		level = Full
	}
	b.level.Store(int32(level))
}

// Interval is that between two calls of Weigh: in it a client can't begin more calls than
// take a few MiB.
const Interval = 20 * time.Millisecond
