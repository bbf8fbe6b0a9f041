package tenant

import (
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/auth"
)

// Watches count the open watches for the quotas of one state of users and roles. With another
// state come others, which count from the beginning. Enter and Leave are called under one lock.
type Watches struct {
	state   *auth.State
	reach   *auth.Reach
	tallies []*tally       // by quota
	open    []atomic.Int64 // likewise
}

// Enter counts a watch, of a user by its credential, for the quotas that it belongs to, which it
// returns. If one of them has no room it fails and counts for none; but with must it counts
// nevertheless, for it is open already.
func (w *Watches) Enter(user uint64, key, end []byte, must bool) (quotas []int32, err error) {
	u, err := w.state.Authorize(user)
	if err != nil {
		return nil, nil // it isn't permitted, which isn't decided here
	}
	quotas = w.reach.OfRead(u, key, end)
	for _, q := range quotas {
		if !must && w.open[q].Load() >= w.reach.Quotas[q].Watchers {
			return nil, w.tallies[q].overWatches.refuse()
		}
	}
	for _, q := range quotas {
		w.open[q].Add(1)
	}
	return quotas, nil
}

// Leave ends the count of a watch for the quotas that Enter returned.
func (w *Watches) Leave(quotas []int32) {
	for _, q := range quotas {
		w.open[q].Add(-1)
	}
}

// count returns the open watches of the quota for the same role or prefix.
func (w *Watches) count(q *auth.Quota) int64 {
	for i := range w.reach.Quotas {
		if w.reach.Quotas[i].Same(q) {
			return w.open[i].Load()
		}
	}
	return 0
}
