package queue

import (
	"context"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Future is a command that was sent. Any number of goroutines may wait for it, any number of
// times; a context that ends ends only the waiting.
type Future struct {
	taken, done engine.Promise[int64]
}

// Taken waits until the command is in the queue, and will be carried out, whatever becomes of this
// client. An error is final: the command is not in the queue, unless it is ErrUnknown.
func (f *Future) Taken(ctx context.Context) error {
	_, err := f.taken.Wait(ctx)
	return err
}

// Done waits until every cluster has had the command.
func (f *Future) Done(ctx context.Context) error {
	_, err := f.done.Wait(ctx)
	return err
}

// fail ends a command that isn't known to be in the queue.
func (f *Future) fail(err error) {
	f.taken.Resolve(0, err)
	f.done.Resolve(0, err)
}

// Failed returns the future of a command that was not sent.
func Failed(err error) *Future {
	f := new(Future)
	f.fail(err)
	return f
}
