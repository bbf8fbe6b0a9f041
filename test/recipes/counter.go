package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// counting increments one counter from all sides.
type counting struct {
	referee recipe.Kit
	kits    []recipe.Kit
	got     [][]int64 // what each client's increments returned
}

func (w *counting) begin(ctx context.Context, referee recipe.Kit, kits []recipe.Kit) error {
	w.referee, w.kits, w.got = referee, kits, make([][]int64, len(kits))
	return referee.Reset(ctx, "counter", len(kits))
}

func (w *counting) run(ctx context.Context, rec *recorder) error {
	return each(ctx, w.kits, func(ctx context.Context, i int, k recipe.Kit) error {
		c := k.Counter()
		for !rec.stopped() {
			start := time.Now()
			n, err := c.Increment(ctx)
			if err != nil {
				return err
			}
			rec.add(time.Since(start))
			w.got[i] = append(w.got[i], n)
		}
		return nil
	})
}

// check: the increments returned 1, 2, … n, each once, and n is where the counter stands.
func (w *counting) check(ctx context.Context) error {
	n := int64(0)
	for _, values := range w.got {
		n += int64(len(values))
	}
	seen := make([]bool, n+1)
	for _, values := range w.got {
		for i, v := range values {
			if v < 1 || v > n || seen[v] {
				return fmt.Errorf("%d increments, and one of them returned %d, which is out of range or came twice", n, v)
			}
			if i > 0 && v < values[i-1] {
				return fmt.Errorf("an increment returned %d after the same client's %d", v, values[i-1])
			}
			seen[v] = true
		}
	}
	value, err := w.referee.Counter().Value(ctx)
	if err != nil {
		return err
	}
	if value != n {
		return fmt.Errorf("the counter stands at %d after %d increments", value, n)
	}
	return nil
}
