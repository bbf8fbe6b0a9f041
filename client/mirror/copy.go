package mirror

import (
	"context"
	"sync"
)

// copy reads both sides and writes the difference. Each page of the source is of the revision
// at which it is read, since the source may compact whatever revision they were all read at.
// So the target is no state of the source yet; it is once the changes from before the first
// page up to behind the last have been written as well, which follow does. A copy that was
// interrupted begins again, and writes what still differs.
func (e *Executor) copy(ctx context.Context) error {
	e.closeFeed()
	first, err := e.sourceRevision(ctx)
	if err != nil {
		return err
	}
	if err := e.write(ctx, nil, Copying, first); err != nil {
		return err
	}
	feed := e.cfg.Source.Changes(ctx, first+1)
	err = e.writeDifference(ctx)
	if err == nil {
		e.until, err = e.sourceRevision(ctx)
	}
	if err != nil {
		feed.Close()
		return err
	}
	e.feed, e.through = feed, first
	return e.complete(ctx)
}

// complete ends a copy if all changes that it may have read in part have been written.
func (e *Executor) complete(ctx context.Context) error {
	if e.mark.Phase != Copying || e.through < e.until {
		return nil
	}
	return e.write(ctx, nil, At, e.through)
}

func (e *Executor) sourceRevision(ctx context.Context) (revision int64, err error) {
	err = e.again(ctx, func() (err error) {
		revision, err = e.cfg.Source.Revision(ctx)
		return err
	})
	return revision, err
}

func (e *Executor) writeDifference(ctx context.Context) error {
	source := newCursor(e.pages(e.cfg.Source.Page))
	target := newCursor(e.pages(e.cfg.Target.Page))
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

// pages reads a side, again if a request fails.
func (e *Executor) pages(read func(context.Context, []byte, int64) ([]KV, []byte, error)) page {
	return func(ctx context.Context, from []byte) (kvs []KV, next []byte, err error) {
		err = e.again(ctx, func() (err error) {
			kvs, next, err = read(ctx, from, 0)
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
	at, was := e.at, e.was
	for range max(e.cfg.Writers, 1) {
		w.done.Go(func() {
			for ops := range w.work {
				if w.ctx.Err() != nil {
					continue
				}
				if _, err := e.commit(w.ctx, Txn{If: at, Was: was, Ops: ops}); err != nil {
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
