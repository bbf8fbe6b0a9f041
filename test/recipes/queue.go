package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// queueing is the stress of §6.1.2: each client adds an element and removes the head,
// so that there is at least one element whenever a client removes. An operation is
// both together, its latency that of the removal.
type queueing struct {
	kits           []recipe.Kit
	added, removed [][]string // by client
}

func (w *queueing) begin(ctx context.Context, referee recipe.Kit, kits []recipe.Kit) error {
	w.kits, w.added, w.removed = kits, make([][]string, len(kits)), make([][]string, len(kits))
	return referee.Reset(ctx, "queue", len(kits))
}

func (w *queueing) run(ctx context.Context, rec *recorder) error {
	return each(ctx, w.kits, func(ctx context.Context, i int, k recipe.Kit) error {
		q := k.Queue()
		for n := 0; !rec.stopped(); n++ {
			element := fmt.Sprintf("c%02d-%06d", i, n)
			if err := q.Add(ctx, element); err != nil {
				return err
			}
			w.added[i] = append(w.added[i], element)
			start := time.Now()
			head, err := q.Remove(ctx)
			if err != nil {
				return err
			}
			rec.add(time.Since(start))
			w.removed[i] = append(w.removed[i], head)
		}
		return nil
	})
}

// check: what was added was removed, each element once.
func (w *queueing) check(context.Context) error {
	open := map[string]bool{}
	for _, elements := range w.added {
		for _, e := range elements {
			open[e] = true
		}
	}
	for _, elements := range w.removed {
		for _, e := range elements {
			if !open[e] {
				return fmt.Errorf("%q was removed twice or was never added", e)
			}
			delete(open, e)
		}
	}
	for e := range open {
		return fmt.Errorf("%q and %d others were added and never removed", e, len(open)-1)
	}
	return w.inOrder()
}

// inOrder: a consumer gets one client's elements in the order in which that
// client added them.
func (w *queueing) inOrder() error {
	for _, elements := range w.removed {
		last := map[string]string{} // by the client that added
		for _, e := range elements {
			from := e[:3]
			if e <= last[from] {
				return fmt.Errorf("%q was removed after %q, which the same client added later", e, last[from])
			}
			last[from] = e
		}
	}
	return nil
}
