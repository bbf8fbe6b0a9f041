package host

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/internal/placement"
)

// lags are causal reads that wait for this server to catch up with a revision
// that their client has seen on another server. Each ends once: by being taken
// off the list.
type lags struct {
	count atomic.Int32 // of list: with none, an announcement costs no lock
	mu    sync.Mutex
	list  []*lag
}

type lag struct {
	state    *State
	parts    placement.Set
	revision int64
	done     func(error)
	stop     func() // the timer
}

var (
	errNotCaughtUp = errors.New("this server has not caught up")
	errReplaced    = errors.New("another state has taken the place of the one by which it was planned")
)

// wait calls l.done once: with nil when this server has caught up, with errNotCaughtUp
// after the limit, with errReplaced if that state is no longer the present one. Not if it
// is dropped before.
func (ls *lags) wait(server Server, limit time.Duration, l *lag) {
	ls.mu.Lock()
	l.stop = server.After(limit, func() { ls.end(errNotCaughtUp, func(o *lag) bool { return o == l }) })
	ls.list = append(ls.list, l)
	ls.count.Add(1)
	ls.mu.Unlock()
	// Either may have happened before it was on the list.
	ls.check()
	if server.State() != l.state {
		ls.end(errReplaced, func(o *lag) bool { return o == l })
	}
}

// check ends the waits of which the revision has been closed here.
func (ls *lags) check() {
	if ls.count.Load() > 0 {
		ls.end(nil, func(l *lag) bool { return l.state.closed(l.parts) >= l.revision })
	}
}

// replaced ends the waits for another state than the present one.
func (ls *lags) replaced(present *State) {
	ls.end(errReplaced, func(l *lag) bool { return l.state != present })
}

// end ends waits, and tells them so after the lock is released.
func (ls *lags) end(why error, which func(*lag) bool) {
	for _, l := range ls.take(which) {
		l.stop()
		l.done(why)
	}
}

// drop removes a wait that is not needed any more.
func (ls *lags) drop(l *lag) {
	for range ls.take(func(o *lag) bool { return o == l }) {
		l.stop()
	}
}

// take takes waits off the list. which is called under the list's lock: it takes none.
func (ls *lags) take(which func(*lag) bool) (taken []*lag) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.list = slices.DeleteFunc(ls.list, func(l *lag) bool {
		if which(l) {
			taken = append(taken, l)
			return true
		}
		return false
	})
	ls.count.Store(int32(len(ls.list)))
	return taken
}
