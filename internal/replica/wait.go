package replica

import (
	"slices"
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// waiters are the reads that wait for a partition to catch up.
type waiters struct {
	mu      sync.Mutex
	list    []waiter
	stopped error
}

type waiter struct {
	index uint64 // applied must reach it
	stamp int64  // no stamp up to it may be outstanding
	done  func(error)
}

// reached tells whether a read need not wait any more, and closes the partition through
// what it waited for: if this server ceases to stamp before the read is evaluated, the
// sequencer doesn't say so any more, and the answer would be at an older revision.
func (g *group) reached(w *waiter) bool {
	if g.applied.Load() < w.index || w.stamp > 0 && g.r.seq.Floor(g.id) <= w.stamp {
		return false
	}
	g.r.closed[g.id].raise(w.stamp)
	return true
}

// after calls done once the group has applied index and nothing stamped <=
// stamp is outstanding in it.
func (g *group) after(index uint64, stamp int64, done func(error)) {
	w := waiter{index: index, stamp: stamp, done: done}
	if g.reached(&w) {
		done(nil)
		return
	}
	g.wait.mu.Lock()
	// Again under the lock: check runs after the group has published.
	if g.reached(&w) {
		g.wait.mu.Unlock()
		done(nil)
		return
	}
	err := g.wait.stopped
	if err == nil {
		g.wait.list = append(g.wait.list, w)
	}
	g.wait.mu.Unlock()
	if err != nil {
		done(err)
	}
}

// check lets go of those whose time has come.
func (ws *waiters) check(g *group) {
	ws.mu.Lock()
	var ready []waiter
	ws.list = slices.DeleteFunc(ws.list, func(w waiter) bool {
		if !g.reached(&w) {
			return false
		}
		ready = append(ready, w)
		return true
	})
	ws.mu.Unlock()
	for _, w := range ready {
		w.done(nil)
	}
}

// fail lets all go with an error.
func (ws *waiters) fail(err error) {
	ws.mu.Lock()
	list := ws.list
	ws.list = nil
	ws.mu.Unlock()
	for _, w := range list {
		w.done(err)
	}
}

// stop is fail, also for all that come later.
func (ws *waiters) stop(err error) {
	ws.mu.Lock()
	ws.stopped = err
	ws.mu.Unlock()
	ws.fail(err)
}

// ReadPoint calls done, once, when the partitions can be read strictly on this
// server: Visible of each is then at or above everything that was acknowledged
// before this call. done may be called from any goroutine and must not block.
// An error means that nothing is known; the caller may try again.
func (r *Replica) ReadPoint(parts placement.Set, done func(error)) {
	r.readPoint(parts, vote{}, done)
}

// readPoint is ReadPoint; asker is whose question it is, if another server's.
func (r *Replica) readPoint(parts placement.Set, asker vote, done func(error)) {
	if !r.seq.IsOpen() {
		r.reads.readPoint(parts, done)
		return
	}
	r.conf.confirm(asker, func(p readPoint, err error) {
		if err != nil {
			done(err)
			return
		}
		if r.cfg.Mutations.ReadWithoutWait {
			done(nil)
			return
		}
		r.await(parts, done, func(i int) (uint64, int64) {
			if len(r.groups) == 1 {
				return p.indexes[i], 0
			}
			return p.indexes[i], p.committed
		})
	})
}

// await calls done after every partition has reached its point.
func (r *Replica) await(parts placement.Set, done func(error), point func(p int) (index uint64, stamp int64)) {
	if parts.Len() == 1 {
		p := parts.First()
		index, stamp := point(p)
		r.groups[p].after(index, stamp, done)
		return
	}
	var mu sync.Mutex
	left, failed := parts.Len(), error(nil)
	for p := range parts.Each() {
		index, stamp := point(p)
		r.groups[p].after(index, stamp, func(err error) {
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

// AwaitApplied calls done when this server has applied an index of a group.
func (r *Replica) AwaitApplied(group int, index uint64, done func(error)) {
	if group < 0 || group >= len(r.groups) {
		done(fault.Internal)
		return
	}
	r.groups[group].after(index, 0, done)
}
