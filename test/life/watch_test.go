package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// watcher is what a watch has seen, by value: each is written once.
type watcher struct {
	name string
	l    *load
	mu   sync.Mutex
	seen map[string]int64
	at   int64
	gone map[string]bool // keys that were deleted
	wait chan struct{}
}

func newWatcher(l *load, name string) *watcher {
	return &watcher{name: name, l: l, seen: map[string]int64{}, gone: map[string]bool{}, wait: make(chan struct{})}
}

// take takes the events of one response.
func (w *watcher) take(events []*clientv3.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range events {
		rev, value := e.Kv.ModRevision, string(e.Kv.Value)
		if rev < w.at || rev == w.at && i == 0 {
			w.l.fault("watch %s: %s of revision %d after %d", w.name, e.Kv.Key, rev, w.at)
		}
		w.at = rev
		if e.Type == clientv3.EventTypeDelete {
			w.gone[string(e.Kv.Key)] = true
			continue
		}
		if at, twice := w.seen[value]; twice {
			w.l.fault("watch %s: %q at revision %d and %d", w.name, value, at, rev)
		}
		w.seen[value] = rev
	}
	close(w.wait)
	w.wait = make(chan struct{})
}

func (w *watcher) next() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at + 1
}

// reaches waits until it has seen a revision.
func (w *watcher) reaches(ctx context.Context, rev int64) bool {
	for {
		w.mu.Lock()
		at, wait := w.at, w.wait
		w.mu.Unlock()
		if at >= rev {
			return true
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return false
		}
	}
}

// follow watches with etcd's client, and goes on behind the last event when the watch ends.
func (w *watcher) follow(ctx context.Context, open func(context.Context) (clientv3.Watcher, func(), error)) {
	for ctx.Err() == nil {
		cli, end, err := open(ctx)
		if err != nil {
			w.l.failed(fmt.Errorf("watch %s: opening: %w", w.name, err))
			sleep(ctx, 300*time.Millisecond)
			continue
		}
		inner, cancel := w.until(ctx)
		for r := range cli.Watch(inner, "/life/", clientv3.WithPrefix(), clientv3.WithRev(w.next())) {
			if err := r.Err(); err != nil {
				w.ended(err)
				break
			}
			w.take(r.Events)
		}
		cancel()
		end()
		sleep(ctx, 100*time.Millisecond)
	}
}

// session watches with a session.
func (w *watcher) session(ctx context.Context, open func(context.Context) (*client.Session, func(), error)) {
	for ctx.Err() == nil {
		s, end, err := open(ctx)
		if err != nil {
			w.l.failed(fmt.Errorf("watch %s: opening: %w", w.name, err))
			sleep(ctx, 300*time.Millisecond)
			continue
		}
		inner, cancel := w.until(ctx)
		watch, err := s.Watch(inner, "/life/", clientv3.WithPrefix(), clientv3.WithRev(w.next()))
		for err == nil {
			var n client.Notification
			if n, err = watch.Next(inner); err == nil {
				if err = n.Err; err == nil && len(n.Events) > 0 {
					w.take(n.Events)
				}
			}
		}
		if inner.Err() == nil {
			w.ended(err)
		}
		cancel()
		end()
		sleep(ctx, 100*time.Millisecond)
	}
}

// until ends when clients are to come anew.
func (w *watcher) until(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(ctx)
	anew := w.l.anew()
	go func() {
		select {
		case <-anew:
		case <-inner.Done():
		}
		cancel()
	}()
	return inner, cancel
}

func (w *watcher) ended(err error) {
	w.l.failed(fmt.Errorf("watch %s: %w", w.name, err))
	if errors.Is(err, rpctypes.ErrCompacted) && !w.l.restoring.Load() {
		w.l.fault("watch %s at %d: %v", w.name, w.next(), err)
	}
}
