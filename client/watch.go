package client

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Watch brings the events of a key or a range, each once, in the order of their
// revisions, for as long as the session lasts, also over broken connections.
type Watch struct {
	// Feed receives the notifications of the watch, and of others that share
	// it.
	*Feed
	e *engine.Watch
}

// Watch watches a key, or the range that the options say, from now on or from
// clientv3.WithRev; it returns when the watch is open. ctx is that of opening: a
// watch ends with Watch.Close or with its session.
func (r Reader) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) (*Watch, error) {
	return r.WatchInto(ctx, nil, key, opts...)
}

// WatchInto is Watch with notifications that go to a feed, together with those of
// other watches; nil is a new feed.
func (r Reader) WatchInto(ctx context.Context, f *Feed, key string, opts ...clientv3.OpOption) (*Watch, error) {
	if f == nil {
		f = NewFeed()
	}
	f.join() // so that the feed does not end with an attempt
	defer f.push(Notification{}, true)
	for {
		w := r.newWatch(f, key, opts)
		_, err := w.open(ctx).Wait(ctx)
		if err == nil {
			return w, nil
		}
		w.Close() // it may be open all the same, or be so soon
		if !errors.Is(err, ErrOvertaken) {
			return nil, err
		}
	}
}

// WatchAsync asks for a watch without waiting until it is open. It shows the
// events after all earlier requests of the session.
func (r Reader) WatchAsync(f *Feed, key string, opts ...clientv3.OpOption) *Future[*Watch] {
	return r.newWatch(f, key, opts).open(context.Background())
}

func (r Reader) newWatch(f *Feed, key string, opts []clientv3.OpOption) *Watch {
	if f == nil {
		f = NewFeed()
	}
	w := &Watch{Feed: f}
	w.e = r.engine().NewWatch(engine.AskFor(key, opts), filler{w})
	return w
}

func (w *Watch) open(ctx context.Context) *Future[*Watch] {
	w.join()
	return future(engine.OpenWatch(ctx, w.e, w))
}

// filler puts the notifications of a watch into its feed.
type filler struct{ w *Watch }

func (f filler) Respond(*pb.WatchResponse) {}

func (f filler) Bring(r *pb.WatchResponse) {
	events := make([]*clientv3.Event, len(r.Events))
	for i, e := range r.Events {
		events[i] = (*clientv3.Event)(e)
	}
	f.w.push(Notification{Watch: f.w, Events: events, Revision: r.Header.Revision}, false)
}

// End is delivered to readers of the feed, unless it was already.
func (f filler) End(err error) {
	n := Notification{Watch: f.w}
	if !errors.Is(err, ErrWatchClosed) {
		n.Err = err
	}
	f.w.push(n, true)
}

// Next waits for the next notification of the watch, or, if it shares a feed, of the
// feed. The error is the last notification's, ErrWatchClosed behind it, or ctx's.
func (w *Watch) Next(ctx context.Context) (Notification, error) {
	n, err := w.Feed.Next(ctx)
	if err == nil {
		err = n.Err
	}
	return n, err
}

// Err is nil until the watch has ended.
func (w *Watch) Err() error {
	if w.e == nil {
		return ErrWatchClosed
	}
	return w.e.Err()
}

// Close ends the watch. No further notification is delivered; those in the feed
// stay there.
func (w *Watch) Close() {
	if w.e != nil {
		w.e.Close()
	}
}
