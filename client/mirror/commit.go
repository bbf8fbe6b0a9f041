package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Commit executes a transaction, again while its answers are lost and retry, which pauses, says
// so. It fails with ErrTakenOver or ErrFinished if it was refused, because the mark is another
// one; whether it had taken effect before that is unknown, but it won't any more.
func Commit(ctx context.Context, target Target, t Txn, retry func(ctx context.Context, err error) bool) (Result, error) {
	lost := false
	for {
		r, err := target.Commit(ctx, t)
		if err != nil {
			if !retry(ctx, err) {
				return r, err
			}
			lost = true
			continue
		}
		return outcome(t, r, lost)
	}
}

// outcome is that of a transaction whose answers may have been lost before.
func outcome(t Txn, r Result, lost bool) (Result, error) {
	switch {
	case !r.Refused:
		return r, nil
	case t.Mark != nil && bytes.Equal(t.Mark, r.Mark): // it has taken effect before
		return Result{Revision: r.ModRevision}, nil
	case r.ModRevision == 0 && t.Finish && lost:
		return r, nil
	case r.ModRevision == 0:
		return r, ErrFinished
	}
	var by struct {
		Owner string `json:"owner"`
	}
	if err := json.Unmarshal(r.Mark, &by); err == nil {
		return r, fmt.Errorf("%w: %s", ErrTakenOver, by.Owner)
	}
	return r, ErrTakenOver
}
