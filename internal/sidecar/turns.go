package sidecar

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many do something at once. Programs that wait get theirs one after the other, and what waits for one of them in
// the order in which it came: a program that wants many turns takes its place among others each time.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*program
}

// program waits for turns.
type program struct {
	by    any
	turns []chan struct{}
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
	p := t.program(by)
	if p == nil {
		p = &program{by: by}
		t.waiting = append(t.waiting, p)
	}
	p.turns = append(p.turns, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if !t.leave(by, mine) { // it came meanwhile
		t.done()
	}
	return ctx.Err()
}

// program is one that waits; nil if it doesn't.
func (t *turns) program(by any) *program {
	if i := slices.IndexFunc(t.waiting, func(p *program) bool { return p.by == by }); i >= 0 {
		return t.waiting[i]
	}
	return nil
}

// leave reports whether that turn had not come.
func (t *turns) leave(by any, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.program(by)
	if p == nil {
		return false
	}
	i := slices.Index(p.turns, turn)
	if i < 0 {
		return false
	}
	if p.turns = slices.Delete(p.turns, i, i+1); len(p.turns) == 0 {
		t.waiting = slices.DeleteFunc(t.waiting, func(other *program) bool { return other == p })
	}
	return true
}

func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	p := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(p.turns[0])
	if p.turns = p.turns[1:]; len(p.turns) > 0 {
		t.waiting = append(t.waiting, p)
	}
}

// wanted reports whether others wait.
func (t *turns) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting) > 0
}
