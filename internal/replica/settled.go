package replica

import (
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
)

// A client's change of members is answered once all groups have followed it, and have sealed it
// where that is needed (package membership). The server that stamps knows that, and tells the others with each tick, for
// as long as they may not have heard.
type settledWaiters struct {
	reached atomic.Uint64 // the highest generation known to be settled
	mu      sync.Mutex
	waiting []settledWaiter
	stopped error
}

type settledWaiter struct {
	generation uint64
	deadline   int64
	done       func(error)
}

// AwaitSettled calls done once all groups have followed the list of members of a
// generation, or after RequestTicks with fault.Timeout; the change then goes on.
func (r *Replica) AwaitSettled(generation uint64, done func(error)) {
	if wait, err := r.settled.enter(settledWaiter{generation, r.deadline(), done}); !wait {
		done(err)
	}
}

// enter reports whether there is something to wait for: then s.done will be called.
func (w *settledWaiters) enter(s settledWaiter) (wait bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.reached.Load() >= s.generation:
		return false, nil
	case w.stopped != nil:
		return false, w.stopped
	}
	w.waiting = append(w.waiting, s)
	return true, nil
}

// Settled is the highest generation of members that is known to have been reached by all
// groups.
func (r *Replica) Settled() uint64 { return r.settled.reached.Load() }

// Settle notes that a generation has been reached, on another's word than that of the one that stamps.
func (r *Replica) Settle(generation uint64) { r.settled.reach(generation) }

func (w *settledWaiters) reach(generation uint64) {
	w.mu.Lock()
	if generation <= w.reached.Load() {
		w.mu.Unlock()
		return
	}
	w.reached.Store(generation)
	var done []settledWaiter
	w.waiting, done = extract(w.waiting, func(s settledWaiter) bool { return s.generation <= generation })
	w.mu.Unlock()
	for _, s := range done {
		s.done(nil)
	}
}

func (w *settledWaiters) expire(now int64) {
	w.fail(func(s settledWaiter) bool { return s.deadline <= now }, fault.Timeout)
}

// stop fails those that wait, and all that come later; the change goes on.
func (w *settledWaiters) stop(err error) {
	w.mu.Lock()
	w.stopped = err
	w.mu.Unlock()
	w.fail(func(settledWaiter) bool { return true }, err)
}

func (w *settledWaiters) fail(match func(settledWaiter) bool, err error) {
	w.mu.Lock()
	var failed []settledWaiter
	w.waiting, failed = extract(w.waiting, match)
	w.mu.Unlock()
	for _, s := range failed {
		s.done(err)
	}
}

// tellSettled tells the peers, if this server stamps.
func (r *Replica) tellSettled() {
	if !r.seq.IsOpen() {
		return
	}
	list := r.cfg.Machine.Membership()
	if list.Generation == 0 || !membership.Sealed(list, r.cfg.Machine.Configurations()) {
		return
	}
	r.settled.reach(list.Generation)
	for _, id := range r.Peers() {
		r.cfg.Network.Send(id, Packet{Settled: list.Generation})
	}
}
