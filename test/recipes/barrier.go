package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// meeting lets all clients enter a barrier at once, closes it, and again. The latency
// is from a client's arrival until it is let through, the time between two meetings
// does not count.
type meeting struct {
	referee recipe.Kit
	kits    []recipe.Kit
}

func (w *meeting) begin(_ context.Context, referee recipe.Kit, kits []recipe.Kit) error {
	w.referee, w.kits = referee, kits
	return nil
}

func (w *meeting) run(ctx context.Context, rec *recorder) error {
	for first := true; !rec.stopped(); first = false {
		if err := w.referee.Reset(ctx, "barrier", len(w.kits)); err != nil {
			return err
		}
		begin := time.Now()
		took, err := w.meet(ctx, first)
		if err != nil {
			return err
		}
		rec.during(time.Since(begin), took)
	}
	return nil
}

// late is how long the last one lets the others wait when the barrier is put to the test.
const late = 50 * time.Millisecond

// meet has all participants enter once, the first of them late if asked. None
// may be let through before all have arrived.
func (w *meeting) meet(ctx context.Context, wait bool) ([]time.Duration, error) {
	var arrived atomic.Int64
	var others sync.WaitGroup // who are not late
	others.Add(len(w.kits) - 1)
	took := make([]time.Duration, len(w.kits))
	err := each(ctx, w.kits, func(ctx context.Context, i int, k recipe.Kit) error {
		b := k.Barrier(fmt.Sprintf("c%02d", i), len(w.kits))
		if wait && i == 0 {
			others.Wait() // on a busy machine they come when they can
			time.Sleep(late)
		}
		start := time.Now()
		arrived.Add(1)
		if i > 0 {
			others.Done()
		}
		if err := b.Enter(ctx); err != nil {
			return err
		}
		took[i] = time.Since(start)
		if n := arrived.Load(); n < int64(len(w.kits)) {
			return fmt.Errorf("WRONG: the barrier let one through when %d of %d had arrived", n, len(w.kits))
		}
		return nil
	})
	if err == nil && wait && len(w.kits) > 1 && slices.Max(took) < late {
		err = errors.New("WRONG: no participant waited for the last one")
	}
	return took, err
}

// check: meet has looked at every meeting.
func (w *meeting) check(context.Context) error { return nil }
