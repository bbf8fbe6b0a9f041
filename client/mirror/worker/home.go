package worker

import (
	"context"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// home is the source of a mirror, which knows for how long it hasn't answered. A worker that is cut off from it keeps its lease in the
// target, and with that all others from going on, which may reach home: so it ends its term.
type home struct {
	mirror.Source
	patience time.Duration

	mu    sync.Mutex
	since time.Time // the first of the requests that have failed in a row was sent; zero: the last one was answered
}

// ID implements mirror.Source.
func (h *home) ID(ctx context.Context) (id uint64, err error) {
	defer h.asked(ctx, time.Now(), &err)
	asking, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	return h.Source.ID(asking)
}

// Revision implements mirror.Source.
func (h *home) Revision(ctx context.Context) (revision int64, err error) {
	defer h.asked(ctx, time.Now(), &err)
	asking, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	return h.Source.Revision(asking)
}

// Page implements mirror.Source.
func (h *home) Page(ctx context.Context, from []byte, revision int64) (kvs []mirror.KV, next []byte, err error) {
	defer h.asked(ctx, time.Now(), &err)
	return h.Source.Page(ctx, from, revision)
}

// asked notes what has become of a request.
func (h *home) asked(ctx context.Context, sent time.Time, err *error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case *err == nil || !cluster.Transient(*err):
		h.since = time.Time{}
	case ctx.Err() == nil && h.since.IsZero():
		h.since = sent
	}
}

// away reports that home hasn't answered for as long as it may.
func (h *home) away() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.since.IsZero() && time.Since(h.since) >= h.patience
}

// retry sends failed requests again, until home is away.
func (h *home) retry(report func(error)) func(context.Context, error) bool {
	again := cluster.Retry(report)
	return func(ctx context.Context, err error) bool { return !h.away() && again(ctx, err) }
}
