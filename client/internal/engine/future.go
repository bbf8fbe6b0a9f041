package engine

import (
	"context"
	"sync/atomic"
)

// Future is the answer to a request that was sent without waiting for it. It may
// be waited for by any number of goroutines, any number of times.
type Future[T any] struct {
	// nil: no waiters; resolved: there is an answer; else the channel of the
	// waiters. Most futures of a pipeline are resolved before they are waited
	// for, and then need no channel.
	gate  atomic.Pointer[chan struct{}]
	value T
	err   error
	// then, if set, gets the answer before the waiters do, and may change it.
	// It must not block.
	then func(T, error) (T, error)
}

// resolved is the gate of every future that has an answer.
var resolved = func() *chan struct{} {
	c := make(chan struct{})
	close(c)
	return &c
}()

// Done is closed when there is an answer.
func (f *Future[T]) Done() <-chan struct{} {
	if g := f.gate.Load(); g != nil {
		return *g
	}
	c := make(chan struct{})
	if f.gate.CompareAndSwap(nil, &c) {
		return c
	}
	return *f.gate.Load()
}

// Wait waits for the answer. When ctx ends first, it only stops waiting: the
// request is still in flight, whether it takes effect is unknown, and the
// future may be waited for again.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	if f.gate.Load() != resolved {
		select {
		case <-f.Done():
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	return f.value, f.err
}

// resolve gives the answer, once.
func (f *Future[T]) resolve(value T, err error) {
	if f.then != nil {
		value, err = f.then(value, err)
	}
	f.value, f.err = value, err
	if waited := f.gate.Swap(resolved); waited != nil {
		close(*waited)
	}
}

func (f *Future[T]) fail(err error) {
	var none T
	f.resolve(none, err)
}
