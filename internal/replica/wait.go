package replica

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// waiters are the reads, and the writes that another server has carried out, that
// wait for a partition to catch up here.
type waiters struct {
	mu      sync.Mutex
	list    []waiter
	ended   uint64 // epochs up to it have ended
	stopped error
}

type waiter struct {
	until
	deadline int64 // tick
	done     func(error)
}

// until is the position that a partition must have reached.
type until struct {
	index uint64 // applied
	stamp int64  // none up to it outstanding, if it isn't 0
	// epoch is that of the stamp. Once it has ended the outcome of its
	// reservations is not tracked any more.
	epoch uint64
}

// reached reports whether a read need not wait any more, and closes the
// partition through the revision that it waited for: if this server stops
// stamping before the read is evaluated, the sequencer has no closed revision
// any more, and the answer would be at an older one.
func (g *group) reached(u until) bool {
	if g.applied.Load() < u.index || u.stamp > 0 && g.r.seq.Floor(g.id) <= u.stamp {
		return false
	}
	g.r.closed[g.id].raise(u.stamp)
	return true
}

// after calls done once the group has reached u, or with the reason for which
// it won't.
func (g *group) after(u until, deadline int64, done func(error)) {
	if wait, err := g.wait.enter(g, waiter{u, deadline, done}); !wait {
		done(err)
	}
}

// enter reports whether there is something to wait for: then w.done will be
// called. It checks under the lock. The callers that release waiters (check,
// end, stop) change the state first and take the lock then, so that no waiter
// enters after them.
func (ws *waiters) enter(g *group, w waiter) (wait bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.stopped != nil:
		return false, ws.stopped
	case g.reached(w.until):
		return false, nil
	case w.stamp > 0 && w.epoch <= ws.ended:
		return false, fault.LeaderChanged
	}
	ws.list = append(ws.list, w)
	return true, nil
}

// remove removes the waiters that match.
func (ws *waiters) remove(match func(waiter) bool) (removed []waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.list, removed = extract(ws.list, match)
	return removed
}

// check releases the waiters that have reached their position.
func (ws *waiters) check(g *group) {
	release(ws.remove(func(w waiter) bool { return g.reached(w.until) }), nil)
}

// expire fails the waiters that have timed out.
func (ws *waiters) expire(now int64) {
	release(ws.remove(func(w waiter) bool { return w.deadline <= now }), fault.Timeout)
}

// end fails those that wait for stamps of an epoch that has ended.
func (ws *waiters) end(epoch uint64) []waiter {
	ws.mu.Lock()
	ws.ended = epoch
	ws.mu.Unlock()
	return ws.remove(func(w waiter) bool { return w.stamp > 0 && w.epoch <= epoch })
}

// stop fails all that wait, and all that come later.
func (ws *waiters) stop(err error) {
	ws.mu.Lock()
	ws.stopped = err
	ws.mu.Unlock()
	release(ws.remove(func(waiter) bool { return true }), err)
}

func release(list []waiter, err error) {
	for _, w := range list {
		w.done(err)
	}
}

// ReadPoint calls done, once, when the partitions can be read strictly on this
// server: Visible of each is then at or above everything that was acknowledged
// before this call. done may be called from any goroutine and must not block.
// After an error the caller may try again.
func (r *Replica) ReadPoint(parts placement.Set, done func(error)) {
	if parts&^r.all() != 0 { // routed before the number of partitions changed
		done(fault.Moved)
		return
	}
	r.readPoint(parts, confirmation{}, r.deadline(), done)
}

// readPoint is ReadPoint; asker is the confirmation of the asking server, if it
// is another one.
func (r *Replica) readPoint(parts placement.Set, asker confirmation, deadline int64, done func(error)) {
	if !r.seq.IsOpen() {
		r.reads.readPoint(forwardedRead{parts, deadline, done})
		return
	}
	r.conf.confirm(asker, deadline, func(p readPoint, err error) {
		if err != nil {
			done(err)
			return
		}
		r.await(parts, p.until, deadline, done)
	})
}

// await calls done after every partition has reached its point.
func (r *Replica) await(parts placement.Set, point func(p int) until, deadline int64, done func(error)) {
	if parts.Len() == 1 {
		p := parts.First()
		r.groups[p].after(point(p), deadline, done)
		return
	}
	var mu sync.Mutex
	left, failed := parts.Len(), error(nil)
	for p := range parts.Each() {
		r.groups[p].after(point(p), deadline, func(err error) {
			mu.Lock()
			left--
			if err != nil {
				failed = err
			}
			last, err := left == 0, failed
			mu.Unlock()
			if last {
				done(err)
			}
		})
	}
}

func (r *Replica) awaitApplied(group int, index uint64, deadline int64, done func(error)) {
	r.groups[group].after(until{index: index}, deadline, done)
}
