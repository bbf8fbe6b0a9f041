package host

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/internal/placement"
)

// lags are causal reads that wait for this server to catch up with what their
// client has seen elsewhere.
type lags struct {
	count atomic.Int32
	mu    sync.Mutex
	list  []*lag
}

type lag struct {
	state    *State
	parts    placement.Set
	revision int64
	stop     func() // the clock
	done     func(error)
}

var (
	errNotCaughtUp = errors.New("this server has not caught up")
	errReplaced    = errors.New("another state has taken the place of the one that was to catch up")
)

func (ls *lags) wait(server Server, limit time.Duration, l *lag) {
	ls.mu.Lock()
	ls.list = append(ls.list, l)
	ls.count.Add(1)
	l.stop = server.After(limit, func() { ls.give(errNotCaughtUp, func(o *lag) bool { return o == l }) })
	ls.mu.Unlock()
	ls.check()                     // it may have caught up before it was on the list
	if server.State() != l.state { // or be left behind
		ls.give(errReplaced, func(o *lag) bool { return o == l })
	}
}

// check lets go of those whose time has come.
func (ls *lags) check() {
	if ls.count.Load() > 0 {
		ls.give(nil, func(l *lag) bool { return l.state.shows(l.parts) >= l.revision })
	}
}

func (ls *lags) give(err error, which func(*lag) bool) {
	var ready []*lag
	ls.mu.Lock()
	kept := ls.list[:0]
	for _, l := range ls.list {
		if which(l) {
			ready = append(ready, l)
		} else {
			kept = append(kept, l)
		}
	}
	clear(ls.list[len(kept):])
	ls.list = kept
	ls.count.Store(int32(len(kept)))
	ls.mu.Unlock()
	for _, l := range ready {
		l.stop()
		l.done(err)
	}
}
