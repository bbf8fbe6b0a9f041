package main

import (
	"context"
	"sync"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// workload is what the clients of a cell do with a recipe, and what must come of it.
type workload interface {
	// begin resets the recipe through the referee.
	begin(ctx context.Context, referee recipe.Kit, kits []recipe.Kit) error
	// run works until the recorder is stopped. Every operation that was begun is ended.
	run(ctx context.Context, rec *recorder) error
	// check says what is wrong after run.
	check(ctx context.Context) error
}

func newWorkload(name string) workload {
	switch name {
	case "counter":
		return &counting{}
	case "queue":
		return &queueing{}
	case "barrier":
		return &meeting{}
	}
	return &electing{}
}

// each runs a function for every participant at once and returns the first error,
// which ends the others.
func each(ctx context.Context, kits []recipe.Kit, do func(ctx context.Context, i int, k recipe.Kit) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, k := range kits {
		wg.Go(func() {
			if err := do(ctx, i, k); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
