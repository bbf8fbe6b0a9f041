package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
)

// maxBuffered bounds the changes that wait in a feed, in bytes, once it is read. etcd's client would keep what comes then without
// a bound, so the watch ends, and begins again when the changes were taken: if they are compacted by then, the source is copied.
// While a copy is made nothing is read, and all that comes is kept: without it the copy would have been in vain.
const maxBuffered = 64 << 20

// changeOverhead is about what a change takes beside its key and value.
const changeOverhead = 150

// feed collects the events of a watch, so that the changes that come while a transaction is
// in flight are in the next one together.
type feed struct {
	span    Span
	stamp   bool
	watcher clientv3.Watcher
	ctx     context.Context // the watch's: a request for its progress needs the same
	cancel  context.CancelFunc
	more    chan struct{} // 1: there is something to return
	room    chan struct{} // 1: something was taken

	mu      sync.Mutex
	changes []mirror.Change
	bytes   int
	read    bool
	through int64
	taken   int64
	err     error // of the watch, once the changes before are taken
}

func newFeed(ctx context.Context, w clientv3.Watcher, span Span, stamp bool, from int64) *feed {
	f := &feed{span: span, stamp: stamp, watcher: w, more: make(chan struct{}, 1), room: make(chan struct{}, 1), through: from - 1, taken: from - 1}
	f.ctx, f.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	go f.collect()
	return f
}

var errEnded = errors.New("the watch has ended")

func (f *feed) collect() {
	for f.watch() {
		for f.full() {
			select {
			case <-f.room:
			case <-f.ctx.Done():
				return
			}
		}
	}
	f.fail(errEnded)
}

// watch collects events until the feed is full, or the watch has ended.
func (f *feed) watch() (full bool) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.mu.Lock()
	from := f.through + 1
	f.mu.Unlock()
	for r := range f.watcher.Watch(ctx, f.span.From, clientv3.WithRange(f.span.End), clientv3.WithRev(from), clientv3.WithFragment()) {
		if !f.add(&r) {
			return false
		}
		if f.full() {
			return true
		}
	}
	return false
}

func (f *feed) add(r *clientv3.WatchResponse) bool {
	switch {
	case r.CompactRevision != 0:
		f.fail(fmt.Errorf("%w %d", mirror.ErrCompacted, r.CompactRevision))
		return false
	case r.Err() != nil:
		f.fail(r.Err())
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range r.Events {
		f.through = max(f.through, e.Kv.ModRevision)
		if f.span.excepts(e.Kv.Key) {
			continue
		}
		c := mirror.Change{Revision: e.Kv.ModRevision, Key: e.Kv.Key, Value: e.Kv.Value, Deleted: e.Type == clientv3.EventTypeDelete}
		if f.stamp && !c.Deleted {
			c.Value = Stamped(e.Kv)
		}
		f.changes = append(f.changes, c)
		f.bytes += len(c.Key) + len(c.Value) + changeOverhead
	}
	if r.IsProgressNotify() {
		f.through = max(f.through, r.Header.Revision)
	}
	signal(f.more)
	return true
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	signal(f.more)
}

func (f *feed) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read && f.bytes > maxBuffered
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Next implements mirror.Feed.
func (f *feed) Next(ctx context.Context) ([]mirror.Change, int64, error) {
	for {
		if changes, through, err := f.take(); err != nil || through > 0 {
			return changes, through, err
		}
		select {
		case <-f.more:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// take returns a revision through of 0 if there is nothing new.
func (f *feed) take() ([]mirror.Change, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = true
	if f.through == f.taken {
		return nil, 0, f.err
	}
	changes := f.changes
	f.changes, f.bytes, f.taken = nil, 0, f.through
	signal(f.room)
	return changes, f.through, nil
}

// Ask implements mirror.Feed. What is full has something to return.
func (f *feed) Ask(context.Context) error {
	if f.full() {
		return nil
	}
	return f.watcher.RequestProgress(f.ctx)
}

// Close implements mirror.Feed.
func (f *feed) Close() { f.cancel() }
