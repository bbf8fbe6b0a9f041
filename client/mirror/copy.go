package mirror

import (
	"context"
	"errors"
	"sync"
)

// copy makes the target what the source is at its current revision: it reads both, and
// writes the difference. A copy that was interrupted begins again, and then writes what was
// still to be written. If the source compacts the revision meanwhile, it begins again with a
// later one: there is less to write each time, so that it takes about as long as to read
// both.
func (e *Executor) copy(ctx context.Context) error {
	e.closeFeed()
	var revision int64
	err := e.again(ctx, func() (err error) {
		revision, err = e.cfg.Source.Revision(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := e.write(ctx, nil, Copying, revision); err != nil {
		return err
	}
	err = e.writeDifference(ctx, revision)
	if errors.Is(err, ErrCompacted) {
		return nil // still in phase Copying
	}
	if err != nil {
		return err
	}
	return e.write(ctx, nil, At, revision)
}

func (e *Executor) writeDifference(ctx context.Context, revision int64) error {
	source := newCursor(e.pages(e.cfg.Source.Page, revision))
	target := newCursor(e.pages(e.cfg.Target.Page, 0))
	w := e.newWriters(ctx)
	var ops []Op
	var bytes int
	var keys, written int64
	err := merge(w.ctx, source, target, func(s, t *KV) error {
		op, differs := repair(s, t)
		if differs {
			if l := e.cfg.Limits; len(ops) > 0 && (len(ops) >= l.Ops || bytes+op.size() > l.Bytes) {
				w.send(ops)
				ops, bytes = nil, 0
			}
			ops, bytes = append(ops, op), bytes+op.size()
			written++
		}
		if s != nil {
			keys++
		}
		if e.cfg.Compared != nil {
			e.cfg.Compared(keys, written)
		}
		return nil
	})
	if err == nil && len(ops) > 0 {
		w.send(ops)
	}
	if failed := w.wait(); failed != nil {
		return failed // the other error is that of the cancelled context
	}
	return err
}

// pages reads a side at a revision, again if a request fails.
func (e *Executor) pages(read func(context.Context, []byte, int64) ([]KV, []byte, error), revision int64) page {
	return func(ctx context.Context, from []byte) (kvs []KV, next []byte, err error) {
		err = e.again(ctx, func() (err error) {
			kvs, next, err = read(ctx, from, revision)
			return err
		})
		return kvs, next, err
	}
}

// writers execute transactions that leave the mark as it is, several at a time and in any
// order: they are of different keys.
type writers struct {
	e      *Executor
	ctx    context.Context // ends with the first error
	cancel context.CancelCauseFunc
	work   chan []Op
	done   sync.WaitGroup
	failed error
	once   sync.Once
}

func (e *Executor) newWriters(ctx context.Context) *writers {
	w := &writers{e: e, work: make(chan []Op)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	at := e.at
	for range max(e.cfg.Writers, 1) {
		w.done.Go(func() {
			for ops := range w.work {
				if w.ctx.Err() != nil {
					continue
				}
				if _, err := e.commit(w.ctx, Txn{If: at, Ops: ops}); err != nil {
					w.once.Do(func() { w.failed = err })
					w.cancel(err)
				}
			}
		})
	}
	return w
}

func (w *writers) send(ops []Op) { w.work <- ops }

// wait returns the first error, once nothing is in flight.
func (w *writers) wait() error {
	close(w.work)
	w.done.Wait()
	if w.failed == nil {
		w.failed = w.ctx.Err() // what wasn't sent is missing
	}
	w.cancel(nil)
	return w.failed
}
