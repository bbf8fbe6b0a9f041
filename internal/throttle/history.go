package throttle

import "sync/atomic"

// History is what one kind of request has cost an extension on this server. The zero
// History is empty. One goroutine writes it at a time, any may read.
type History struct {
	mean atomic.Int64 // ns, of the last runs
	most atomic.Int64 // steps plus one; 0: there was no request yet
}

const (
	meanOf   = 8 // requests
	stepTime = 8 // ns, of a step of the extension language (cost-model)
)

// Note adds a request that took a time and steps. The time includes garbage collections and
// whatever else the machine does; the steps are exact, and those of the worst request count
// for ever: a script may be fast most of the time on purpose.
func (h *History) Note(ns, steps int64) {
	old := h.mean.Load()
	h.mean.Store(old + (ns-old)/meanOf)
	if steps >= h.most.Load() {
		h.most.Store(steps + 1)
	}
}

// Cost is the cost of the next request. Before the first it may be that of limit steps.
func (h *History) Cost(limit int64) Cost {
	most := h.most.Load()
	if most == 0 {
		return Cost{Most: limit * stepTime}
	}
	return Cost{Likely: h.mean.Load(), Most: most * stepTime}
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
