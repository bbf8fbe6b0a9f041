package node

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
)

func learnt(name string, ns int64) *callGate {
	g := &callGate{}
	for range 100 {
		g.note(name, ns)
	}
	return g
}

// However many slow calls are made, those in flight take no more than the budget together;
// all of them are admitted in the end.
func TestSlowCallsAreInFlightWithinTheBudget(t *testing.T) {
	g := learnt("slow", slowBudget/4)
	var all sync.WaitGroup
	var now, most, done atomic.Int64
	for range 200 {
		all.Go(func() {
			expected, err := g.enter(t.Context(), "slow")
			require.NoError(t, err)
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Microsecond)
			now.Add(-1)
			done.Add(1)
			g.leave(expected)
		})
	}
	all.Wait()
	require.EqualValues(t, 200, done.Load())
	require.LessOrEqual(t, most.Load(), int64(4+1)) // the mean is rounded down
	require.Zero(t, g.inFlight)
}

// Fast calls pass. One that takes longer than the budget passes alone, and so does one of an
// extension that has not run here yet.
func TestTheGateIsForSlowCalls(t *testing.T) {
	g := learnt("fast", slowCallTime/2)
	for range 100 {
		for _, name := range []string{"fast", ""} {
			expected, err := g.enter(t.Context(), name)
			require.NoError(t, err)
			require.Zero(t, expected)
		}
	}
	alone(t, learnt("very slow", 10*slowBudget), "very slow")
	alone(t, g, "new")
}

func alone(t *testing.T, g *callGate, name string) {
	expected, err := g.enter(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := g.enter(ctx, name)
		failed <- err
	}()
	require.Eventually(t, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.waiting) == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	g.leave(expected)
	require.Zero(t, g.inFlight)
	require.Empty(t, g.waiting)
}

// Calls that would wait too long are refused.
func TestTheGateRefusesMoreThanMayWait(t *testing.T) {
	g := learnt("slow", 2*slowBudget)
	expected, err := g.enter(t.Context(), "slow")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxSlowCalls {
		all.Go(func() { _, _ = g.enter(ctx, "slow") })
	}
	require.Eventually(t, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.waiting) == maxSlowCalls }, time.Minute, time.Millisecond)
	_, err = g.enter(ctx, "slow")
	require.ErrorIs(t, err, fault.TooManyRequests)
	cancel()
	all.Wait()
	g.leave(expected)
	require.Zero(t, g.inFlight)
}

// A server doesn't remember the times of extensions for ever.
func TestTheGateForgets(t *testing.T) {
	var g callGate
	for i := range 3 * maxKnownTimes {
		g.note(time.Duration(i).String(), slowCallTime)
	}
	n := 0
	g.took.Range(func(any, any) bool { n++; return true })
	require.LessOrEqual(t, n, maxKnownTimes)
}
