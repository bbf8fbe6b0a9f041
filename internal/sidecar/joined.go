package sidecar

import (
	"context"
	"sync"
	"time"
)

// joined has one question asked for all that wait for its answer: one at a time is under way, and what comes
// meanwhile waits for the next.
type joined[T any] struct {
	read func() (T, error)

	mu   sync.Mutex
	sent time.Time  // of the one under way; zero: none is
	next *asking[T] // not sent yet
}

type asking[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

// ask returns an answer to a question that was sent after the call.
func (j *joined[T]) ask(ctx context.Context) (answer T, err error) {
	j.mu.Lock()
	if j.next == nil {
		j.next = &asking[T]{done: make(chan struct{})}
	}
	a := j.next
	if j.sent.IsZero() {
		j.sent = time.Now()
		go j.run()
	}
	j.mu.Unlock()
	select {
	case <-a.done:
		return a.answer, a.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// late reports whether the one under way has taken longer than that.
func (j *joined[T]) late(limit time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.sent.IsZero() && time.Since(j.sent) > limit
}

func (j *joined[T]) run() {
	for {
		j.mu.Lock()
		a := j.next
		j.next = nil
		if a == nil {
			j.sent = time.Time{}
			j.mu.Unlock()
			return
		}
		j.sent = time.Now()
		j.mu.Unlock()
		a.answer, a.err = j.read()
		close(a.done)
	}
}
