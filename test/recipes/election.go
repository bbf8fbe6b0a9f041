package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

// electing is the stress of §6.1.4: each elected leader resigns at once and
// campaigns again. An operation is a change of leader, its latency the time
// from the old leader's resignation until the new one knows of its election.
type electing struct {
	elections []recipe.Election
	kits      []recipe.Kit
	leader    atomic.Int64 // its number + 1, 0 while there is none
	resigned  atomic.Pointer[time.Time]
	changes   atomic.Int64
}

func (w *electing) begin(ctx context.Context, referee recipe.Kit, kits []recipe.Kit) error {
	if err := referee.Reset(ctx, "election", len(kits)); err != nil {
		return err
	}
	w.kits, w.elections = kits, make([]recipe.Election, len(kits))
	return each(ctx, kits, func(ctx context.Context, i int, k recipe.Kit) error {
		var err error
		w.elections[i], err = k.Election(ctx, fmt.Sprintf("c%02d", i))
		return err
	})
}

func (w *electing) run(ctx context.Context, rec *recorder) error {
	return each(ctx, w.kits, func(ctx context.Context, i int, _ recipe.Kit) error {
		for !rec.stopped() {
			if err := w.lead(ctx, i, rec); err != nil {
				return err
			}
		}
		return nil
	})
}

// The first reigns of a round, before anything is measured, last for a while.
const (
	longReigns = 5
	reign      = 10 * time.Millisecond
)

// lead is one reign.
func (w *electing) lead(ctx context.Context, i int, rec *recorder) error {
	if err := w.elections[i].Campaign(ctx); err != nil {
		return err
	}
	elected := time.Now()
	if !w.leader.CompareAndSwap(0, int64(i)+1) {
		return fmt.Errorf("WRONG: client %d is elected while client %d leads", i, w.leader.Load()-1)
	}
	if w.changes.Add(1) <= longReigns {
		time.Sleep(reign) // another leader beside this one would be seen
	}
	if before := w.resigned.Load(); before != nil {
		rec.add(elected.Sub(*before))
	}
	now := time.Now()
	w.resigned.Store(&now)
	w.leader.Store(0)
	return w.elections[i].Resign(ctx)
}

func (w *electing) check(context.Context) error {
	if w.changes.Load() == 0 {
		return errors.New("no participant was ever elected")
	}
	return nil
}
