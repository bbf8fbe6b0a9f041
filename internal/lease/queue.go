package lease

import (
	"container/heap"
	"time"
)

// queue orders timers by the time of their next check. A timer may be in several
// queues and knows its place in each, so that it can move without a search.
type queue struct {
	slot   int // index of this queue in timer's places
	timers []*timer
}

// put adds a timer or moves it to another time.
func (q *queue) put(t *timer, at time.Time) {
	t.wake[q.slot] = at
	if q.has(t) {
		heap.Fix(q, t.pos[q.slot])
	} else {
		heap.Push(q, t)
	}
}

func (q *queue) has(t *timer) bool { return t.pos[q.slot] >= 0 }

// drop removes a timer, if it is there.
func (q *queue) drop(t *timer) {
	if q.has(t) {
		heap.Remove(q, t.pos[q.slot])
	}
}

// due returns the first timer if its time has come. It stays in the queue.
func (q *queue) due(now time.Time) *timer {
	if len(q.timers) == 0 || q.timers[0].wake[q.slot].After(now) {
		return nil
	}
	return q.timers[0]
}

// The methods of heap.Interface. Equal times are ordered by id, so that the
// simulation replays exactly.

func (q *queue) Len() int { return len(q.timers) }

func (q *queue) Less(i, j int) bool {
	a, b := q.timers[i], q.timers[j]
	if c := a.wake[q.slot].Compare(b.wake[q.slot]); c != 0 {
		return c < 0
	}
	return a.id < b.id
}

func (q *queue) Swap(i, j int) {
	q.timers[i], q.timers[j] = q.timers[j], q.timers[i]
	q.timers[i].pos[q.slot], q.timers[j].pos[q.slot] = i, j
}

func (q *queue) Push(x any) {
	t := x.(*timer)
	t.pos[q.slot] = len(q.timers)
	q.timers = append(q.timers, t)
}

func (q *queue) Pop() any {
	last := len(q.timers) - 1
	t := q.timers[last]
	q.timers[last] = nil
	q.timers = q.timers[:last]
	t.pos[q.slot] = -1
	return t
}
