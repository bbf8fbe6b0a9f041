package client

import (
	"context"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Future is the answer to a request that was sent without waiting for it. Any number
// of goroutines may wait for it, any number of times.
type Future[T any] engine.Future[T]

func future[T any](f *engine.Future[T]) *Future[T] { return (*Future[T])(f) }

// Done is closed when there is an answer.
func (f *Future[T]) Done() <-chan struct{} { return (*engine.Future[T])(f).Done() }

// Wait waits for the answer. When ctx ends first, it only stops waiting: the
// request is still in flight, whether it takes effect is unknown, and the
// future may be waited for again.
func (f *Future[T]) Wait(ctx context.Context) (T, error) { return (*engine.Future[T])(f).Wait(ctx) }
