package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/stoa-kv/stoa/test/sim/cover"
)

// loop decides what happens next. Everything that ever runs in a simulation is
// an event of it, so that a seed is a whole run.
type loop struct {
	now    time.Duration // since the cluster began
	rng    *rand.Rand
	source *rand.PCG // rng's
	queue  events
	seq    uint64
	count  int
	trace  uint64 // hash of everything that happened
	out    io.Writer
	said   *[]string // gets what is printed, too, while a trouble happens
	turn   func()    // before each event, if there is one
}

// event is something that will happen. Of two at the same time the one with
// the lower tie comes first, which is drawn by lot.
type event struct {
	at       time.Duration
	tie, seq uint64
	what     string
	a, b     uint64
	run      func()
}

func newLoop(seed uint64, out io.Writer) *loop {
	source := rand.NewPCG(seed, 0x5704)
	return &loop{rng: rand.New(source), source: source, trace: 14695981039346656037, out: out}
}

// after lets run happen in a while. what, a and b name it in the trace.
func (l *loop) after(d time.Duration, what string, a, b uint64, run func()) {
	l.at(l.now+d, l.tie(), what, a, b, run)
}

// at is after, at a known time with a tie that was drawn.
func (l *loop) at(at time.Duration, tie uint64, what string, a, b uint64, run func()) {
	l.seq++
	l.queue.push(event{at: at, tie: tie, seq: l.seq, what: what, a: a, b: b, run: run})
}

// tie draws one, behind those of events that were put off.
func (l *loop) tie() uint64 { return l.rng.Uint64() | 1<<63 }

// putOff moves an event to a later time, ahead of what was planned for that
// time, in the order in which the events were due.
func (l *loop) putOff(until time.Duration, due time.Duration, what string, a, b uint64, run func()) {
	l.at(until, uint64(due), what, a, b, run)
}

// runUntil lets things happen until end, or until stop says so.
func (l *loop) runUntil(end time.Duration, stop func() bool) {
	for len(l.queue) > 0 && l.queue[0].at <= end && !stop() {
		e := l.queue.pop()
		l.now = e.at
		l.count++
		cover.Event(uint32(len(e.what))<<8|uint32(e.what[0]), l.now)
		if l.turn != nil {
			l.turn()
		}
		l.note(uint64(e.at), e.a, e.b, uint64(len(e.what)), uint64(e.what[0]))
		e.run()
	}
	if !stop() {
		l.now = max(l.now, end)
	}
}

// note makes values part of the trace.
func (l *loop) note(values ...uint64) {
	for _, v := range values {
		l.trace = (l.trace ^ v) * 1099511628211
		l.trace ^= l.trace >> 29
	}
}

func (l *loop) printf(format string, args ...any) {
	if l.said != nil {
		*l.said = append(*l.said, fmt.Sprintf(format, args...))
	}
	if l.out != nil {
		fmt.Fprintf(l.out, "%10.3fms ", float64(l.now)/1e6)
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}

// between draws a duration.
func (l *loop) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(l.rng.Int64N(int64(hi-lo)+1))
}

// chance is true once in n.
func (l *loop) chance(n int) bool { return l.rng.IntN(n) == 0 }

// pick draws one of a list.
func pick[T any](l *loop, from []T) T { return from[l.rng.IntN(len(from))] }

// events is a heap. (container/heap has each event allocated twice, on its way in and on its way out.)
type events []event

// before: all events differ in seq.
func (e *event) before(o *event) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.tie != o.tie:
		return e.tie < o.tie
	}
	return e.seq < o.seq
}

func (q *events) push(e event) {
	h := append(*q, e)
	*q = h
	at := len(h) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if !e.before(&h[parent]) {
			break
		}
		h[at], at = h[parent], parent
	}
	h[at] = e
}

func (q *events) pop() event {
	h := *q
	end := len(h) - 1
	first, e := h[0], h[end]
	h[end] = event{}
	h = h[:end]
	*q = h
	if end == 0 {
		return first
	}
	at := 0
	for child := 1; child < end; child = 2*at + 1 {
		if child+1 < end && h[child+1].before(&h[child]) {
			child++
		}
		if e.before(&h[child]) {
			break
		}
		h[at], at = h[child], child
	}
	h[at] = e
	return first
}
