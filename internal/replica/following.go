package replica

import (
	"errors"
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
)

// following keeps rendezvous back while the groups follow a change of members: some
// commits long. Its lock comes before those of the sequencer's lanes.
type following struct {
	mu   sync.RWMutex // held shared while a rendezvous is stamped
	on   bool
	held []*Write
}

// errFollowing: the rendezvous was not stamped.
var errFollowing = errors.New("replica: the groups follow a change of members")

// keeps reports whether rendezvous are kept back: while groups follow, and until those that were kept
// back have been stamped, behind which all later ones belong. With mu held.
func (f *following) keeps() bool { return f.on || len(f.held) > 0 }

// stamp runs fn, which stamps a rendezvous, unless these are kept back.
func (f *following) stamp(fn func() error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.keeps() {
		return errFollowing
	}
	return fn()
}

// hold keeps a write until the groups have followed, or refuses it if as many are kept as may wait. It returns false if they have.
func (f *following) hold(w *Write) bool {
	f.mu.Lock()
	keeps, full := f.keeps(), len(f.held) >= maxPendingWrites
	if keeps && !full {
		f.held = append(f.held, w)
	}
	f.mu.Unlock()
	if keeps && full {
		w.fail(fault.TooManyRequests)
	}
	return keeps
}

// set reports whether that is new. When it returns after on, no rendezvous is stamped any more, and all that have
// been are in the queues of their groups. After off, release has to follow.
func (f *following) set(on bool) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, f.on = f.on != on, on
	return changed
}

// release has fn stamp the writes that need not be kept any more, in their order, and returns
// those that it can't stamp.
func (f *following) release(fn func(*Write) error) (failed []*Write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on {
		return nil
	}
	for _, w := range f.held {
		if fn(w) != nil {
			failed = append(failed, w)
		}
	}
	f.held = nil
	return failed
}

// expire fails writes that have timed out.
func (f *following) expire(now int64) {
	f.mu.Lock()
	var late []*Write
	f.held, late = extract(f.held, func(w *Write) bool { return w.deadline <= now })
	f.mu.Unlock()
	failAll(late, fault.Timeout)
}

// hold begins or ends to keep rendezvous back. With mu held.
func (l *leadership) hold(on bool) {
	if !l.r.following.set(on) || on {
		return
	}
	l.effects.add(func() {
		l.r.resubmit(l.r.following.release(l.r.stampAlone))
		for _, g := range l.r.groups {
			g.wake() // those of sessions are in its inbox
		}
	})
}
