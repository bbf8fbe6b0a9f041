package sidecar

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (t *turns) number() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.Len()
}

func TestTurnsInOrder(t *testing.T) {
	turn := newTurns(1)
	require.NoError(t, turn.take(t.Context(), 0))
	require.False(t, turn.wanted())
	order := make(chan int, 3)
	leave, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	for i := range 3 {
		ctx := t.Context()
		if i == 1 {
			ctx = leave
		}
		go func() {
			err := turn.take(ctx, 0)
			if i == 1 {
				left <- err
				return
			}
			order <- i
		}()
		require.Eventually(t, func() bool { return turn.number() == i+1 }, time.Minute, time.Millisecond)
	}
	cancel()
	require.Error(t, <-left)
	require.True(t, turn.wanted())
	turn.done()
	require.Equal(t, 0, <-order)
	turn.done()
	require.Equal(t, 2, <-order, "one that has left gets no turn")
	require.False(t, turn.wanted())
	turn.done()
	require.NoError(t, turn.take(t.Context(), 0))
}

// TestTurnsOfPrograms: one that waits for many turns is one of those that wait.
func TestTurnsOfPrograms(t *testing.T) {
	turn := newTurns(1)
	require.NoError(t, turn.take(t.Context(), "many"))
	order := make(chan string, 6)
	for i, by := range []string{"many", "many", "many", "one", "one", "other"} {
		go func() {
			if turn.take(t.Context(), by) == nil {
				order <- by
			}
		}()
		require.Eventually(t, func() bool { return turn.number() == i+1 }, time.Minute, time.Millisecond)
	}
	var got []string
	for range 6 {
		turn.done()
		got = append(got, <-order)
	}
	require.Equal(t, []string{"many", "one", "other", "many", "one", "many"}, got)
}

func TestTurnsBound(t *testing.T) {
	const bound = 3
	turn := newTurns(bound)
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for n := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%3 == 0 {
					go cancel()
				}
				if turn.take(ctx, i%4) == nil {
					if v := now.Add(1); v > most.Load() {
						most.Store(v)
					}
					now.Add(-1)
					turn.done()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(bound))
	turn.mu.Lock()
	defer turn.mu.Unlock()
	require.Equal(t, bound, turn.free, "each turn was given back")
}
