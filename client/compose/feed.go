package compose

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Feed merges watches over several clusters into one order: no event comes before
// one of another cluster that it causally depends on through this client's own
// requests.
type Feed struct{}

// FeedWatch is one watch of a feed.
type FeedWatch struct{}

// Notification is what a watch brings at one time.
type Notification struct {
	Watch   *FeedWatch
	Cluster string
	// Events are in the order of their revisions. None: progress.
	Events   []*clientv3.Event
	Revision int64 // of Cluster
	// Err is why the watch has ended: its last notification.
	Err error
}

// NewFeed makes an empty feed.
func (c *Client) NewFeed() *Feed { return new(Feed) }

// Watch adds a watch of a key or range, which may lie in several clusters: one
// FeedWatch per cluster and route then.
func (f *Feed) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) ([]*FeedWatch, error) {
	return nil, errSkeleton
}

// Next waits for the next notification.
func (f *Feed) Next(ctx context.Context) (Notification, error) { return Notification{}, errSkeleton }

// Close ends all watches of the feed.
func (f *Feed) Close() {}

// Cluster is where the watch watches.
func (w *FeedWatch) Cluster() string { return "" }

// Close ends the watch.
func (w *FeedWatch) Close() {}
