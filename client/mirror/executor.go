package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Config is that of an executor.
type Config struct {
	Source Source
	Target Target
	// Owner names the executor in the mark. Two executors must not have the same.
	Owner  string
	Limits Limits
	// Keys says which keys are mirrored. A mark that says otherwise is refused with
	// ErrOtherKeys, unless Overwrite is set.
	Keys string
	// EveryChange makes the target's events tell every change of the source: changes of
	// one key, and of revisions behind a deletion, are in transactions of their own.
	EveryChange bool
	// Now is the time for marks, in milliseconds since 1970. nil: they have none.
	Now func() int64
	// Writers is the number of transactions that are in flight while it copies, 1 if 0.
	Writers int
	// Overwrite accepts a target that has keys and no mark, or one of other keys: those
	// that differ from the source are replaced or deleted.
	Overwrite bool
	// Retry is asked after a failed request whether to send it again, and pauses if so. It
	// may be called by several goroutines. nil: never.
	Retry func(ctx context.Context, err error) bool
	// Compared is told the number of the source's keys that a copy has gone through, and
	// the keys that it has written. It may be nil.
	Compared func(keys, written int64)
}

// Executor keeps a target up to date. It is used by one goroutine.
type Executor struct {
	cfg     Config
	mark    Mark
	at      int64  // mod revision of the mark
	was     []byte // its value
	feed    Feed   // nil: none is open
	through int64  // all changes up to this revision have been returned by the feed, and written
	until   int64  // while copying: the revision from which on the target is a state of the source
}

// Open takes over the mirror that the target has the mark of, or begins one in an empty
// target.
func Open(ctx context.Context, c Config) (*Executor, error) {
	e := &Executor{cfg: c}
	var err error
	for range takeOvers {
		err = e.again(ctx, func() error { return e.takeOver(ctx) })
		if !errors.Is(err, ErrTakenOver) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// takeOvers bounds the attempts to take over from an executor that writes the mark all the
// time, and that ends at the first that succeeds.
const takeOvers = 1000

func (e *Executor) takeOver(ctx context.Context) error {
	source, err := e.cfg.Source.ID(ctx)
	if err != nil {
		return err
	}
	// The keys before the mark: an executor that begins beside this one writes the mark first.
	kvs, _, err := e.cfg.Target.Page(ctx, []byte{}, 0)
	if err != nil {
		return err
	}
	value, at, err := e.cfg.Target.Mark(ctx)
	if err != nil {
		return err
	}
	// The revision behind the mark: the one before may be at work, and its mark would else be ahead.
	revision, err := e.cfg.Source.Revision(ctx)
	if err != nil {
		return err
	}
	e.mark, e.at, e.was = Mark{Source: source, Phase: Copying, Revision: revision, Keys: e.cfg.Keys}, at, value
	switch {
	case at != 0:
		if e.mark, err = ParseMark(value); err != nil {
			return err
		}
	case len(kvs) > 0 && !e.cfg.Overwrite:
		return fmt.Errorf("%w (%q is the first)", ErrNotEmpty, kvs[0].Key)
	}
	if e.mark.Source != source {
		return fmt.Errorf("%w, %x; this source is %x", ErrOtherSource, e.mark.Source, source)
	}
	if e.mark.Keys != e.cfg.Keys {
		if !e.cfg.Overwrite {
			return fmt.Errorf("%w: %s, and not %s", ErrOtherKeys, e.mark.Keys, e.cfg.Keys)
		}
		e.mark.Phase = Copying
	}
	if revision < e.mark.Revision { // it was restored
		e.mark.Phase, e.mark.Revision = Copying, revision
	}
	return e.write(ctx, nil, e.mark.Phase, e.mark.Revision)
}

// Mark is the one that was written last.
func (e *Executor) Mark() Mark { return e.mark }

// Place is where both sides are equal. It is valid while the mark is in phase At.
func (e *Executor) Place() Place { return Place{Source: e.mark.Revision, Target: e.at} }

// Next goes one step on: it copies, if the target isn't at a revision of the source; or
// else it waits for changes, no longer than the context wait allows, and writes them. It
// returns without an error if there are none.
func (e *Executor) Next(ctx, wait context.Context) error {
	if e.feed == nil || e.mark.Phase == Leaving {
		switch e.mark.Phase {
		case Copying, Leaving:
			return e.copy(ctx)
		case Partial:
			e.feed = e.cfg.Source.Changes(ctx, e.mark.Revision)
		default:
			e.feed = e.cfg.Source.Changes(ctx, e.mark.Revision+1)
		}
	}
	changes, through, err := e.feed.Next(wait)
	switch {
	case err == nil:
		return e.follow(ctx, changes, through)
	case errors.Is(err, ErrCompacted):
		e.Repeat()
		return nil
	case wait.Err() != nil:
		return ctx.Err()
	}
	e.closeFeed()
	if e.retry(ctx, err) {
		return nil
	}
	return err
}

func (e *Executor) follow(ctx context.Context, changes []Change, through int64) error {
	for _, s := range plan(changes, e.cfg.Limits, e.cfg.EveryChange) {
		if s.revision < e.until {
			s.phase = Copying
		}
		if err := e.write(ctx, s.ops, s.phase, s.revision); err != nil {
			e.closeFeed() // it won't return these changes again
			return err
		}
	}
	e.through = max(e.through, through)
	return e.complete(ctx)
}

// Behind is the number of revisions of the source that haven't been mirrored, as far as is
// known: 0 means that the target has all that had been written before the call.
func (e *Executor) Behind(ctx context.Context) (n int64, err error) {
	err = e.again(ctx, func() error {
		revision, err := e.cfg.Source.Revision(ctx)
		if err != nil {
			return err
		}
		if revision < e.mark.Revision {
			e.Repeat()
		}
		n = max(revision-max(e.mark.Revision, e.through), 0)
		if e.mark.Phase == Copying || e.mark.Phase == Partial {
			n = max(n, 1)
		}
		if n > 0 && e.feed != nil {
			return e.feed.Ask(ctx)
		}
		return nil
	})
	return n, err
}

// Check fails with ErrTakenOver or ErrFinished if the mark isn't this executor's any more. An
// executor finds that out with its next write, which it may never make.
func (e *Executor) Check(ctx context.Context) error {
	return e.again(ctx, func() error {
		value, at, err := e.cfg.Target.Mark(ctx)
		if err != nil || at == e.at && bytes.Equal(value, e.was) {
			return err
		}
		_, err = outcome(Txn{If: e.at, Was: e.was}, Result{Refused: true, Mark: value, ModRevision: at}, false)
		return err
	})
}

// Advance moves the mark to the revision up to which all changes are known and written.
// It does nothing if the mark is there.
func (e *Executor) Advance(ctx context.Context) error {
	if e.mark.Phase != At || e.through <= e.mark.Revision {
		return nil
	}
	return e.write(ctx, nil, At, e.through)
}

// Repeat makes the next step a copy.
func (e *Executor) Repeat() {
	e.mark.Phase = Copying
	e.closeFeed()
}

// Leave says in the mark that leases are going to be attached to the keys.
func (e *Executor) Leave(ctx context.Context) error {
	return e.write(ctx, nil, Leaving, e.mark.Revision)
}

// Attach attaches leases to keys, in phase Leaving.
func (e *Executor) Attach(ctx context.Context, keys []Op) error {
	w := e.newWriters(ctx)
	for _, ops := range chunks(keys, e.cfg.Limits) {
		w.send(ops)
	}
	return w.wait()
}

// Finish deletes the mark. The target is an ordinary cluster then.
func (e *Executor) Finish(ctx context.Context) error {
	e.closeFeed()
	_, err := e.commit(ctx, Txn{If: e.at, Was: e.was, Finish: true})
	return err
}

// Close ends an executor. The mark stays.
func (e *Executor) Close() { e.closeFeed() }

func (e *Executor) closeFeed() {
	if e.feed != nil {
		e.feed.Close()
	}
	e.feed, e.through, e.until = nil, 0, 0
}

// write executes operations, and replaces the mark.
func (e *Executor) write(ctx context.Context, ops []Op, phase Phase, revision int64) error {
	next := Mark{Source: e.mark.Source, Phase: phase, Revision: revision, Owner: e.cfg.Owner, Number: 1, Keys: e.cfg.Keys}
	if phase == At || phase == Partial {
		switch e.mark.Phase {
		case At:
			next.After = e.mark.Revision
		case Partial:
			next.After = e.mark.After
		}
	}
	if e.cfg.Now != nil {
		next.Time = e.cfg.Now()
	}
	if e.mark.Owner == next.Owner {
		next.Number = e.mark.Number + 1
	}
	value := next.encode()
	r, err := e.commit(ctx, Txn{If: e.at, Was: e.was, Ops: ops, Mark: value})
	if err != nil {
		return err
	}
	e.mark, e.at, e.was = next, r.Revision, value
	return nil
}

func (e *Executor) commit(ctx context.Context, t Txn) (Result, error) {
	return Commit(ctx, e.cfg.Target, t, e.retry)
}

func (e *Executor) retry(ctx context.Context, err error) bool {
	return ctx.Err() == nil && e.cfg.Retry != nil && e.cfg.Retry(ctx, err)
}

// again calls fn until it succeeds or its error isn't to be tried again.
func (e *Executor) again(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if err == nil || isFinal(err) || !e.retry(ctx, err) {
			return err
		}
	}
}

// isFinal reports errors of executors and sources that no retry changes.
func isFinal(err error) bool {
	for _, f := range []error{ErrCompacted, ErrTakenOver, ErrFinished, ErrNotEmpty, ErrOtherSource, ErrOtherKeys} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}
