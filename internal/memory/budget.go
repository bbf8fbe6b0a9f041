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
	PerWatch  = 512 // with its key
)

// Parts of the limit.
const (
	share = 4  // requests, and answers, each have one of so many parts of what keys leave of the limit
	least = 16 // and one of so many parts of the limit at least
	// arriving: requests that are arriving have one of so many parts of the room of either.
	arriving = 2
	// watching: and watches one of so many parts of that of streams and answers.
	watching = 2
)

// What is alive, in parts of the limit.
const (
	scarceOf  = 100
	scarce    = 80
	exhausted = 90
)

// Stripes is how many calls can be counted at once without writes to the same cache line.
const Stripes = 16

// Level is how much is refused.
type Level int32

const (
	// Open: nothing is.
	Open Level = iota
	// Full: the room is used up. What serves to come out of that is not refused.
	Full
	// Over: twice the room is used up. Everything new of the kind is refused.
	Over
)

// Budget counts what is in use by what can be refused: by unary calls with their requests, and by
// streams and answers. These are apart, so that clients that don't read keep no others from
// writing. Its methods may be called by any number of goroutines.
type Budget struct {
	limit    int64
	room     atomic.Int64 // that may be in use now, by either
	requests atomic.Int64 // bytes of large ones
	answers  atomic.Int64 // likewise
	arriving atomic.Int64 // of requests that are not complete
	streams  atomic.Int64
	headers  atomic.Int64 // bytes of large ones, of calls that may last
	watches  atomic.Int64 // at the last Weigh
	calls    [Stripes]counter
	unary    atomic.Int32 // a Level, as the next
	streamed atomic.Int32
	live     atomic.Int64 // at the last Weigh
	refused  atomic.Uint64
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
	b.room.Store(limit / share)
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

// Take takes n bytes for a request, to be given back, unless there is no room for them. What is
// larger than that may be taken while nothing else is.
func (b *Budget) Take(n int64) bool {
	if b == nil {
		return true
	}
	return b.enter(&b.requests, n, b.room.Load())
}

// enter counts n bytes more, unless they are more than there is room for. What is larger than the
// room may be counted while nothing else is. To look and to count is one step: what is sent to
// thousands at once is asked for by all of them at once.
func (b *Budget) enter(counted *atomic.Int64, n, room int64) bool {
	if used := counted.Add(n); used > room && used > n {
		counted.Add(-n)
		b.refused.Add(1)
		return false
	}
	return true
}

// Arrive takes n bytes for a request that is arriving, to be given back by Arrived when it is
// complete or never will be, unless there is no room for them. That is apart from what is carried
// out: clients that begin requests and don't end them keep no small ones from being carried out.
func (b *Budget) Arrive(n int64) bool { return b.enter(&b.arriving, n, b.room.Load()/arriving) }

// Arrived gives back what Arrive took.
func (b *Budget) Arrived(n int64) { b.arriving.Add(-n) }

// Hold takes n bytes for the headers of a stream, or of another call whose request is there, or for one whose answer isn't taken, to be given back by Held when it ends, unless there
// is no room for them. They count as streams do: new ones are refused because of them, and no answers. Headers are there before it is
// known whose they are.
func (b *Budget) Hold(n int64) bool { return b.enter(&b.headers, n, b.room.Load()) }

// Held gives back what Hold took.
func (b *Budget) Held(n int64) { b.headers.Add(-n) }

// Tight reports whether answers take so much that each has to be asked for by Fits: most never
// have to find out their size before they are encoded.
func (b *Budget) Tight() bool { return b != nil && b.answers.Load() > b.room.Load()/2 }

// Fits reports whether there is room for an answer of n bytes.
func (b *Budget) Fits(n int64) bool {
	if b == nil {
		return true
	}
	if used := b.answers.Load(); used+n > b.room.Load() && used > 0 {
		b.refused.Add(1)
		return false
	}
	return true
}

// Watch reports whether there is room for another watch.
func (b *Budget) Watch() bool {
	if b == nil || b.watches.Load()*PerWatch <= b.room.Load()/watching {
		return true
	}
	b.refused.Add(1)
	return false
}

// Give gives back what was taken.
func (b *Budget) Give(n int64) {
	if b != nil && n != 0 {
		b.requests.Add(-n)
	}
}

// Unary is the level of unary calls, as found at the last [Budget.Weigh].
func (b *Budget) Unary() Level {
	if b == nil {
		return Open
	}
	return Level(b.unary.Load())
}

// Streamed is the level of streams and answers, likewise.
func (b *Budget) Streamed() Level {
	if b == nil {
		return Open
	}
	return Level(b.streamed.Load())
}

// Scarce reports whether those that ask for more should be held up: the room is used up, or
// what is alive comes near to the limit.
func (b *Budget) Scarce() bool {
	return b != nil && (b.Unary() != Open || b.Streamed() != Open || b.live.Load() > b.limit/scarceOf*scarce)
}

// Exhausted reports whether what is alive, in bytes, is so near to the limit that connections
// have to be closed: of the messages of streams, and of all with grpc-go's transport, nothing is known
// before they are complete.
func (b *Budget) Exhausted(live int64) bool { return live > b.limit/scarceOf*exhausted }

// Refuse counts a refusal because of the level.
func (b *Budget) Refuse() { b.refused.Add(1) }

// Requests is the bytes that unary calls have in use.
func (b *Budget) Requests() int64 {
	calls := int64(0)
	for i := range b.calls {
		calls += b.calls[i].Load()
	}
	return b.requests.Load() + calls*PerCall
}

// Answers is the bytes that streams, watches and answers have in use.
func (b *Budget) Answers() int64 {
	return b.answers.Load() + b.streams.Load()*PerStream + b.headers.Load() + b.watches.Load()*PerWatch
}

// Arriving is the bytes that requests have in use that are not complete.
func (b *Budget) Arriving() int64 { return b.arriving.Load() }

// Room is the bytes that either may have in use.
func (b *Budget) Room() int64 { return b.room.Load() }

// Refused is how often something was refused.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Limit is the server's, in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Weigh finds the level. live is what the last garbage collection found alive, in bytes, requests
// included, and watches how many there are.
func (b *Budget) Weigh(live, watches int64) {
	b.watches.Store(watches)
	requests, answers := b.Requests(), b.Answers()
	// Of what is alive these are a part, though perhaps others than those of now. They get five
	// eighths of what is left, so that the collector has room to work.
	left := b.limit - max(live-requests-answers-b.Arriving(), 0)
	room := max(left/share, b.limit/least)
	b.room.Store(room)
	b.live.Store(live)
	b.unary.Store(int32(level(requests, room)))
	b.streamed.Store(int32(level(answers, room)))
}

func level(used, room int64) Level {
	switch {
	case used > 2*room:
		return Over
	case used > room:
		return Full
	}
	return Open
}

// How long to wait between two calls of Weigh.
const (
	leastPause = 20 * time.Millisecond
	mostPause  = 200 * time.Millisecond
	// perByte is how soon clients are taken to fill a byte with new calls at most: with 61,000 a second
	// of which none is answered.
	perByte = time.Nanosecond
)

// Pause is how long to wait for the next [Budget.Weigh]: less than it would take clients to use up
// what is left now, within bounds. An idle server is woken up seldom.
func (b *Budget) Pause() time.Duration {
	left := min(b.room.Load()-max(b.Requests(), b.Answers()), b.limit/scarceOf*scarce-b.live.Load())
	return min(max(time.Duration(left)*perByte, leastPause), mostPause)
}
