package compose

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// Feed merges watches over several clusters into one order: no event comes
// before one of another cluster that it causally depends on through this
// client's own requests, made since the feed was created. If the client had
// seen an event of one cluster, and then made an update in another, every event
// from that update on comes after the first. Events taken from the feed count
// as seen by the client.
//
// Not guaranteed: an order between events that depend on each other through
// other clients' requests, which the clusters don't record; and the order among
// several watches of one cluster.
//
// The watches of a cluster that doesn't answer for Config.Timeout end, with an
// error that names it, and hold the others back no longer. A feed is not
// bounded: unread notifications take memory.
type Feed struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	merger  merger
	parts   map[int]*part
	ready   []Notification
	arrived chan struct{} // closed when ready has something; nil without waiters
	closed  bool
}

// Notification has a watch's events of one revision.
type Notification struct {
	Watch   *FeedWatch
	Cluster string
	// Events are those of one revision. None: progress, nothing at or below Revision
	// is still to come.
	Events   []*clientv3.Event
	Revision int64 // of Cluster
	// Err is the reason for which the watch has ended, in its last
	// notification.
	Err error
	// CompactRevision is what Cluster is compacted up to, if that is the reason.
	CompactRevision int64
}

// FeedWatch is one watch of a feed, in one cluster.
type FeedWatch struct {
	f      *Feed
	seg    segment
	part   *part
	tail   *tail
	lane   *lane // nil until it is open
	cancel context.CancelFunc
	begin  int64
	ended  bool
	err    error
}

// part is a feed's watches of one cluster, which share one stream.
type part struct {
	f     *Feed
	of    *cluster
	by    *watcher
	nudge chan struct{} // others wait for it
	stop  chan struct{}
	// under Feed.mu
	watches map[*FeedWatch]struct{}
	heard   time.Time
}

// ErrFeedClosed: the feed was closed, or all its watches have ended, and there is
// nothing more to read. It is client.ErrWatchClosed.
var ErrFeedClosed = client.ErrWatchClosed

// NewFeed makes an empty feed.
func (c *Client) NewFeed() *Feed {
	if c.check() != nil {
		return &Feed{}
	}
	f := &Feed{c: c, parts: map[int]*part{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if c.core.feeds == nil {
		c.core.feeds = map[*Feed]struct{}{}
	}
	c.core.feeds[f] = struct{}{}
	c.core.led = false
	return f
}

// depend tells the feeds that an update is about to be sent to a cluster. It
// needs mu.
func (c *core) depend(target int) {
	c.led = true
	d := dependency{cluster: target, from: c.links[target].seen() + 1, needs: make([]int64, len(c.links))}
	for i, l := range c.links {
		if i != target {
			d.needs[i] = l.seen()
		}
	}
	for f := range c.feeds {
		f.mu.Lock()
		f.merger.depend(d)
		f.mu.Unlock()
	}
}

// forgo is for a cluster that has gone back (link.goneBack). It needs core.mu.
func (f *Feed) forgo(cluster int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.merger.forgo(cluster)
	f.give()
}

// Watch adds a watch of a key or range. The range may lie in several clusters:
// there is one FeedWatch per route then. It returns when all are open; ctx is
// that of opening. Without clientv3.WithRev a watch begins after the highest
// revision that the client has seen.
func (f *Feed) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) ([]*FeedWatch, error) {
	if err := f.c.check(); err != nil {
		return nil, err
	}
	segments, err := f.segments(key, opts)
	if err != nil {
		return nil, err
	}
	var all []*FeedWatch
	for _, seg := range segments {
		w, err := f.open(ctx, seg, opts)
		if err != nil {
			for _, w := range all {
				w.Close()
			}
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

func (f *Feed) segments(key string, opts []clientv3.OpOption) ([]segment, error) {
	op := clientv3.OpWatch(key, opts...)
	if len(op.RangeBytes()) > 0 && op.Rev() == 0 {
		if all, _ := f.c.core.routes.segments(bounds(op.KeyBytes(), op.RangeBytes())); len(all) > 0 {
			return all, checkAllReserved(all)
		}
	}
	seg, err := f.c.core.routes.single(op.KeyBytes(), op.RangeBytes())
	return []segment{seg}, err
}

// open opens one watch.
func (f *Feed) open(ctx context.Context, seg segment, opts []clientv3.OpOption) (*FeedWatch, error) {
	w := &FeedWatch{f: f, seg: seg, tail: f.c.core.tail(seg, append(opts[:len(opts):len(opts)], clientv3.WithCreatedNotify()))}
	late := time.NewTimer(f.c.core.cfg.Timeout)
	defer late.Stop()
	var own context.Context
	own, w.cancel = context.WithCancel(f.ctx) // before others know of the watch: they may end it
	if err := f.join(ctx, w); err != nil {
		w.cancel()
		return nil, w.tail.of.named(plain(err), false)
	}
	opened := make(chan struct{})
	go w.run(own, sync.OnceFunc(func() { close(opened) }))
	var err error
	select {
	case <-opened:
	case <-late.C:
		err = w.tail.of.named(ErrSilent, false)
	case <-ctx.Done():
		err = w.tail.of.named(ctx.Err(), false)
	case <-f.ctx.Done():
		err = ErrFeedClosed
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.lane == nil {
		return nil, w.err
	}
	return w, nil
}

// join adds the watch to those that the feed has of its cluster.
func (f *Feed) join(ctx context.Context, w *FeedWatch) error {
	of := w.tail.of
	ctx, cancel := context.WithTimeout(ctx, f.c.core.cfg.Timeout)
	defer cancel()
	near, _, err := of.connect(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrFeedClosed
	}
	p := f.parts[of.at]
	if p == nil {
		p = &part{
			f: f, of: of, by: of.newWatcher(near), heard: time.Now(),
			nudge: make(chan struct{}, 1), stop: make(chan struct{}), watches: map[*FeedWatch]struct{}{},
		}
		f.parts[of.at] = p
		go p.ask()
	}
	p.watches[w] = struct{}{}
	w.part, w.tail.by = p, p.by
	return nil
}

// run processes the events of the watch.
func (w *FeedWatch) run(ctx context.Context, opened func()) {
	err := w.tail.run(ctx, func(r clientv3.WatchResponse) bool {
		w.f.mu.Lock()
		defer w.f.mu.Unlock()
		w.part.heard = time.Now()
		switch {
		case w.ended:
			return false
		case r.Created:
			if w.lane == nil {
				w.begin = max(w.tail.next-1, w.tail.after)
				w.lane = w.f.merger.add(w.seg.cluster, w.begin)
			}
			opened()
		case r.Err() != nil:
			w.endCompacted(r.Err(), r.CompactRevision)
		case r.IsProgressNotify():
			w.bring(item{revision: r.Header.Revision, progress: true, quiet: !w.wantsProgress()})
		default:
			w.bringEvents(r.Events)
		}
		w.f.give()
		return !w.ended
	})
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if err == nil {
		err = ErrFeedClosed
	}
	w.endWith(err)
	w.f.give()
	opened()
}

func (w *FeedWatch) wantsProgress() bool {
	return clientv3.OpWatch(w.seg.from, w.tail.opts...).IsProgressNotify()
}

// bringEvents splits events by revision.
func (w *FeedWatch) bringEvents(events []*clientv3.Event) {
	for len(events) > 0 {
		n, revision := 1, events[0].Kv.ModRevision
		for n < len(events) && events[n].Kv.ModRevision == revision {
			n++
		}
		w.bring(item{revision: revision, what: Notification{Events: events[:n:n]}})
		events = events[n:]
	}
}

// bring needs Feed.mu.
func (w *FeedWatch) bring(it item) {
	if w.lane == nil {
		return
	}
	it.what.Watch, it.what.Cluster = w, w.part.of.name
	if it.revision != atEnd {
		it.what.Revision = it.revision
	}
	w.f.merger.bring(w.lane, it)
}

// endWith needs Feed.mu.
func (w *FeedWatch) endWith(err error) { w.endCompacted(err, 0) }

func (w *FeedWatch) endCompacted(err error, at int64) {
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	w.cancel()
	if err != ErrFeedClosed {
		w.bring(item{revision: atEnd, what: Notification{Err: err, CompactRevision: at}})
	}
	if w.lane != nil {
		w.f.merger.end(w.lane)
	}
	delete(w.part.watches, w)
	if len(w.part.watches) == 0 {
		delete(w.f.parts, w.part.of.at)
		close(w.part.stop)
	}
}

// give releases events to the readers, unless the feed is closed: those before them are lost. It needs mu.
func (f *Feed) give() {
	for _, it := range f.merger.take() {
		if !it.quiet && !f.closed {
			f.ready = append(f.ready, it.what)
		}
	}
	for _, at := range f.merger.lacking() {
		if p := f.parts[at]; p != nil {
			p.hurry()
		}
	}
	if f.arrived != nil && (len(f.ready) > 0 || f.over()) {
		close(f.arrived)
		f.arrived = nil
	}
}

// over reports that no notification will come any more. It needs mu.
func (f *Feed) over() bool { return f.closed || len(f.parts) == 0 && len(f.merger.lanes) == 0 }

// Next waits for the next notification. ErrFeedClosed: no watch fills the feed.
func (f *Feed) Next(ctx context.Context) (Notification, error) {
	for {
		f.mu.Lock()
		if len(f.ready) > 0 {
			n := f.ready[0]
			f.ready[0] = Notification{}
			f.ready = f.ready[1:]
			f.mu.Unlock()
			if len(n.Events) > 0 {
				f.c.core.saw(n.Watch.seg.cluster, n.Revision)
			}
			return n, nil
		}
		if f.over() {
			f.mu.Unlock()
			return Notification{}, ErrFeedClosed
		}
		if f.arrived == nil {
			f.arrived = make(chan struct{})
		}
		arrived := f.arrived
		f.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return Notification{}, ctx.Err()
		}
	}
}

// Close ends all watches of the feed. Unreleased events are lost.
func (f *Feed) Close() {
	if f.c == nil {
		return
	}
	f.c.core.mu.Lock()
	delete(f.c.core.feeds, f)
	f.c.core.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.ready = nil
	f.cancel()
	f.give()
}

// Cluster is the watch's cluster.
func (w *FeedWatch) Cluster() string {
	if w.f == nil {
		return ""
	}
	return w.tail.of.name
}

// Begin is the revision of the cluster behind which the watch begins.
func (w *FeedWatch) Begin() int64 { return w.begin }

// Close ends the watch. Its notifications stay in the feed.
func (w *FeedWatch) Close() {
	if w.f == nil {
		return
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.endWith(ErrFeedClosed)
	w.f.give()
}
