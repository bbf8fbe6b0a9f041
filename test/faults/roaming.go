//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// roaming opens watches again and again while faults happen: from now, or from a revision in the past,
// and keeps each for a while.
type roaming struct {
	mu  sync.Mutex
	all []roamed
}

// roamed is what one watch has told: all events with revisions in [from, through].
type roamed struct {
	what          string
	from, through int64
	told          told
}

// roam opens watches by a client until ctx ends.
func (r *roaming) roam(ctx context.Context, cli *clientv3.Client, rnd *rand.Rand) error {
	known := int64(1) // a revision that the cluster has had
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, time.Duration(200+rnd.IntN(3000))*time.Millisecond)
		w, err := r.watch(one, cli, rnd, known)
		cancel()
		if err != nil {
			return err
		}
		if w.through >= w.from {
			r.mu.Lock()
			r.all = append(r.all, w)
			r.mu.Unlock()
		}
		known = max(known, w.through, w.from-1)
	}
	return nil
}

func (r *roaming) watch(ctx context.Context, cli *clientv3.Client, rnd *rand.Rand, known int64) (roamed, error) {
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	w := roamed{what: "from now", told: told{}}
	switch rnd.IntN(3) {
	case 0:
		w.what, w.from = "from the beginning", 1
		opts = append(opts, clientv3.WithRev(1))
	case 1:
		w.from = max(1, known-rnd.Int64N(50))
		w.what = "from a known revision"
		opts = append(opts, clientv3.WithRev(w.from))
	}
	if rnd.IntN(4) == 0 {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if rnd.IntN(4) == 0 {
		opts = append(opts, clientv3.WithProgressNotify())
	}
	for resp := range cli.Watch(ctx, "/faults/", opts...) {
		if err := resp.Err(); err != nil {
			return w, fmt.Errorf("a watch %s (%d): %w", w.what, w.from, err)
		}
		switch {
		case resp.Created && w.from == 0:
			if resp.Header.Revision < known {
				return w, fmt.Errorf("a watch from now begins after revision %d, but %d was seen before", resp.Header.Revision, known)
			}
			w.from = resp.Header.Revision + 1
		case resp.Created:
		case resp.IsProgressNotify():
			w.through = max(w.through, resp.Header.Revision)
		}
		// etcd's client resumes a watch from now at the revision behind which it was created.
		resp.Events = slices.DeleteFunc(resp.Events, func(e *clientv3.Event) bool { return w.what == "from now" && e.Kv.ModRevision == w.from-1 })
		for _, e := range resp.Events {
			if e.Kv.ModRevision <= w.through || e.Kv.ModRevision < w.from {
				return w, fmt.Errorf("a watch %s (%d) has told revision %d after %d", w.what, w.from, e.Kv.ModRevision, w.through)
			}
		}
		if err := w.told.add(resp.Events); err != nil {
			return w, err
		}
		if n := len(resp.Events); n > 0 {
			w.through = resp.Events[n-1].Kv.ModRevision
		}
	}
	return w, nil
}

// check compares what the watches have told with the history.
func (r *roaming) check(history told) (events int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.all {
		part := told{}
		for rev, changes := range history {
			if rev >= w.from && rev <= w.through {
				part[rev] = changes
			}
		}
		if err := w.told.same(part); err != nil {
			return events, fmt.Errorf("a watch %s, of revisions %d to %d: %w", w.what, w.from, w.through, err)
		}
		events += len(part)
	}
	return events, nil
}
