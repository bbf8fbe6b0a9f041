package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/fault"
)

// callGate keeps slow calls of extensions from filling the log: a call within the limits
// takes up to milliseconds in apply, any number of clients may make them at once, and all
// other writes of the partition would wait behind. So no more of them are in the log than
// take slowBudget together, by the time that their extensions took lately on this server; the
// others wait here, in their order. Fast calls pass. The zero callGate is ready.
type callGate struct {
	took  sync.Map // by an extension's name, *atomic.Int64: the mean of its last runs, in ns
	known atomic.Int64

	mu       sync.Mutex
	inFlight int64 // expected ns
	waiting  []*slowCall
}

// slowCall waits until it may be proposed.
type slowCall struct {
	expected int64
	admitted chan struct{}
}

const (
	slowCallTime  = 100_000   // ns in apply from which on a call is slow
	slowBudget    = 2_000_000 // ns of slow calls that one server has in the log; one call may take longer
	maxSlowCalls  = 2048      // that wait
	maxKnownTimes = 20_000    // of extensions, those that have been removed included
	meanOf        = 8         // runs
)

// note takes the time of a run. It is called from apply loops.
func (g *callGate) note(name string, ns int64) {
	at, ok := g.took.Load(name)
	if !ok {
		if g.known.Add(1) > maxKnownTimes {
			g.took.Clear()
			g.known.Store(1)
		}
		at, _ = g.took.LoadOrStore(name, new(atomic.Int64))
	}
	mean := at.(*atomic.Int64)
	old := mean.Load()
	mean.Store(old + (ns-old)/meanOf) // a lost update doesn't matter
}

// expected is the time that a call of an extension will probably take, 0 for one that is fast.
// One that hasn't run here yet may be slow.
func (g *callGate) expected(name string) int64 {
	at, ok := g.took.Load(name)
	if !ok {
		return slowBudget
	}
	if ns := at.(*atomic.Int64).Load(); ns >= slowCallTime {
		return ns
	}
	return 0
}

// enter waits until a call of an extension may be proposed, and returns what leave is to be
// called with once it has been answered.
func (g *callGate) enter(ctx context.Context, name string) (expected int64, err error) {
	if name == "" {
		return 0, nil // no extension handles the request
	}
	if expected = g.expected(name); expected == 0 {
		return 0, nil
	}
	g.mu.Lock()
	if len(g.waiting) == 0 && g.fits(expected) {
		g.inFlight += expected
		g.mu.Unlock()
		return expected, nil
	}
	if len(g.waiting) >= maxSlowCalls {
		g.mu.Unlock()
		return 0, fault.TooManyRequests
	}
	c := &slowCall{expected, make(chan struct{})}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case <-c.admitted:
		return expected, nil
	case <-ctx.Done():
		g.forget(c)
		return 0, ctx.Err()
	}
}

func (g *callGate) fits(expected int64) bool {
	return g.inFlight == 0 || g.inFlight+expected <= slowBudget
}

// forget takes a call back that isn't waited for any more.
func (g *callGate) forget(c *slowCall) {
	g.mu.Lock()
	at := slices.Index(g.waiting, c)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at < 0 { // it was admitted meanwhile
		g.leave(c.expected)
	}
}

// leave admits the calls that the end of one makes room for.
func (g *callGate) leave(expected int64) {
	if expected == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight -= expected
	for len(g.waiting) > 0 && g.fits(g.waiting[0].expected) {
		g.inFlight += g.waiting[0].expected
		close(g.waiting[0].admitted)
		g.waiting = g.waiting[1:]
	}
}
