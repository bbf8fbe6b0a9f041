package queue

import (
	"context"
	"time"

	"github.com/stoa-kv/stoa/client/internal/lag"
)

// Look is how far a queue is.
type Look struct {
	// Waiting is the number of batches that not all clusters have had, Clients that of the clients that
	// may send. While the queue's cluster isn't reached, they stay what they were.
	Waiting, Clients int64
	// Lag is, for each cluster in the order of the set, the time since which it lacks commands that are in
	// the queue: not longer than this executor has known of them.
	Lag []time.Duration
}

// lookEach is the interval of looks. Each is one request to the queue's cluster.
const lookEach = time.Second

// look tells the observer how far the queue is, until ctx ends.
func (t *term) look(ctx context.Context) {
	var s Status
	lags := make([]lag.Lag, len(t.set))
	for sleep(ctx, lookEach) {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		r, err := askQueue(asking, t.home, t.keys)
		cancel()
		if err == nil {
			err = s.takeQueue(r)
		}
		if err != nil && t.Observer.Retrying != nil {
			t.Observer.Retrying(t.set[0], err)
		}
		t.Observer.Looked(Look{s.Entries, s.Clients, t.lags(lags, time.Now(), s.Done.Entry)})
	}
}

// lags compares each cluster's place with the newest entry. A cluster whose mark hasn't been read is
// where all are.
func (t *term) lags(of []lag.Lag, now time.Time, done int64) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]time.Duration, len(of))
	for i, c := range t.carriers {
		at := done
		if c != nil {
			passed, _ := c.Passed()
			at = max(at, passed)
		}
		all[i] = of[i].Look(now, t.newest, at)
	}
	return all
}
