package throttle

import "sync/atomic"

// History is what one kind of request has cost an extension on this server. The zero
// History is empty. One goroutine writes it at a time, any may read.
type History struct {
	mean atomic.Int64 // ns, of the last runs
	most atomic.Int64 // ns plus one, by what was charged; 0: there was no request yet
}

const (
	meanOf = 8 // requests
	// StepTime is the time of a step of the extension language in ns, and ByteTime that of a byte
	// that is written, which is taken after apply: it is kept, and written to the file. Bytes
	// that an extension makes aren't in the log, whose size holds back other large writes.
	StepTime = 8 // cost-model
	ByteTime = 10
	// A step takes up to twice its time on the machine where that was measured. What took more than
	// this many times as long didn't work all the time: on a busy machine a thread waits for a
	// processor for tens of milliseconds, thousands of times what most scripts take.
	slowest = 4
)

// Charged is the time of so many steps and bytes.
func Charged(steps, bytes int64) (ns int64) { return steps*StepTime + bytes*ByteTime }

// Note adds a request that took a time in apply, steps, and bytes that it wrote. The time includes
// garbage collections and whatever else the machine does, so it counts up to what so many steps can
// take; steps and bytes are exact, and those of the worst request count for ever: a script may be fast
// most of the time on purpose.
func (h *History) Note(ns, steps, bytes int64) {
	ns = min(ns, cheap+slowest*Charged(steps, 0)) + bytes*ByteTime
	old := ns
	if h.most.Load() > 0 {
		old = h.mean.Load()
	}
	h.mean.Store(old + (ns-old)/meanOf)
	if most := Charged(steps, bytes); most >= h.most.Load() {
		h.most.Store(most + 1)
	}
}

// Cost is the cost of the next request. Before the first it may be as much as the limits allow.
func (h *History) Cost(limit int64) Cost {
	most := h.most.Load()
	if most == 0 {
		return Cost{Most: limit}
	}
	return Cost{Likely: h.mean.Load(), Most: most}
}

// Cost is an expected time in apply, in ns.
type Cost struct {
	Likely int64
	Most   int64
}

// Max is the higher one of each.
func (c Cost) Max(o Cost) Cost { return Cost{max(c.Likely, o.Likely), max(c.Most, o.Most)} }

const (
	cheap = 20_000 // ns: hundreds of such requests at once don't matter
	slow  = 50_000 // ns: at a few thousand of these per second there is time for nothing else
)

func (c Cost) slow() bool  { return c.Likely >= slow }
func (c Cost) cheap() bool { return c.Likely < cheap && c.Most < cheap }
