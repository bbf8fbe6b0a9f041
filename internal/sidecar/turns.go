package sidecar

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many do something at once. Those that wait get their turn in the order in
// which they came.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n} }

// take waits for a turn, which done ends; an error if ctx ends first.
func (t *turns) take(ctx context.Context) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, mine)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it came meanwhile
		t.done()
	}
	return ctx.Err()
}

func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

// wanted reports whether others wait.
func (t *turns) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting) > 0
}
