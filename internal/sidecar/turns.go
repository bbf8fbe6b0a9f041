package sidecar

import (
	"context"
	"sync"

	"github.com/stoa-kv/stoa/internal/sidecar/fair"
)

// turns bounds how many do something at once. Programs that wait get theirs one after the other, and what waits for one of them in
// the order in which it came: a program that wants many turns takes its place among others each time.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting fair.Queue[chan struct{}]
}

func newTurns(n int) *turns { return &turns{free: n} }

// take waits for a turn of a program, which done ends; an error if ctx ends first.
func (t *turns) take(ctx context.Context, by any) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.waiting.Push(by, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	left := t.waiting.Remove(by, mine)
	t.mu.Unlock()
	if !left { // its turn came meanwhile
		t.done()
	}
	return ctx.Err()
}

func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, ok := t.waiting.Pop(func(chan struct{}) bool { return true })
	if !ok {
		t.free++
		return
	}
	close(next)
}

// wanted reports whether others wait.
func (t *turns) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.Len() > 0
}
