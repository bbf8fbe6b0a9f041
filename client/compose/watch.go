package compose

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Watch watches a key, or a range that lies in one cluster, as etcd's Watcher
// does. It begins after the revision that the client has seen, and its events
// count as seen. It doesn't order its events with those of other clusters: a
// Feed does.
func (c *Client) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	seg, err := c.watched(key, opts)
	if err != nil {
		return refused(ctx, err)
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		w := c.core.tail(seg, opts)
		var err error
		if c.session != nil {
			err = c.session.Err()
		}
		if err == nil {
			err = w.runAnywhere(ctx, func(r clientv3.WatchResponse) bool {
				if len(r.Events) > 0 {
					c.core.saw(seg.cluster, r.Events[len(r.Events)-1].Kv.ModRevision)
				}
				select {
				case out <- r:
					return true
				case <-ctx.Done():
					return false
				}
			})
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		for r := range refused(ctx, err) {
			select {
			case out <- r:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// watched is the segment of a watch.
func (c *Client) watched(key string, opts []clientv3.OpOption) (segment, error) {
	if err := c.check(); err != nil {
		return segment{}, err
	}
	op := clientv3.OpWatch(key, opts...)
	return c.core.routes.single(op.KeyBytes(), op.RangeBytes())
}

// watchContext is the same for all watches of one stream: progress is asked for, and
// reported, stream by stream.
func watchContext(ctx context.Context) context.Context { return clientv3.WithRequireLeader(ctx) }

// RequestProgress asks for progress on all watches that were opened with Watch.
func (c *Client) RequestProgress(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	in := c.shared.clusters
	return errors.Join(c.core.onAll(ctx, in, func(ctx context.Context, i int, _ *clientv3.Client) error {
		near, _, err := in[i].connect(ctx)
		if err != nil {
			return err
		}
		return in[i].watcher(near).RequestProgress(watchContext(ctx))
	})...)
}

// tail is one watch in one cluster, carried over to another member when one is lost.
type tail struct {
	core *core
	of   *cluster
	seg  segment
	opts []clientv3.OpOption
	// next is the revision to go on with, 0 as long as it is that of the opening.
	next int64
	// after is the revision that the client had seen at the request: no event at or below it is delivered, unless it was requested, or
	// is no change that was watched, but the answer of an extension: those are at or below now, the revision at which the cluster has opened the watch.
	after, now int64
	// by carries it; nil: the cluster's watcher.
	by     *watcher
	opened bool
}

func (c *core) tail(seg segment, opts []clientv3.OpOption) *tail {
	w := &tail{core: c, of: c.links[seg.cluster].cluster, seg: seg, opts: opts}
	op := clientv3.OpWatch(seg.from, opts...)
	if w.next = op.Rev(); w.next == 0 {
		c.mu.Lock()
		w.after = c.links[seg.cluster].seen()
		c.mu.Unlock()
	}
	return w
}

// runAnywhere is run, that begins at a mirror if there is one next to the client.
func (w *tail) runAnywhere(ctx context.Context, deliver func(clientv3.WatchResponse) bool) error {
	if w.watchesView() && !w.runView(ctx, deliver) {
		return nil
	}
	return w.run(ctx, deliver)
}

// run delivers responses until deliver returns false: nil, or until the cluster
// has not served the watch for Config.Timeout: an error that names it. A
// cancellation by the server, as for a compacted revision, is delivered, and
// ends it.
func (w *tail) run(ctx context.Context, deliver func(clientv3.WatchResponse) bool) error {
	began := time.Now() // to open the watch
	for w.core.ctx.Err() == nil {
		served := false
		err := w.open(ctx, began.Add(w.core.cfg.Timeout), func(r clientv3.WatchResponse) bool {
			served = true
			return w.turn(&r) || deliver(r)
		})
		if served {
			began = time.Now()
		}
		var end *watchEnded
		switch {
		case errors.As(err, &end):
			deliver(end.last)
			return nil
		case err == nil || ctx.Err() != nil:
			return nil
		case w.core.ctx.Err() != nil:
			return ErrClosed
		case time.Since(began) >= w.core.cfg.Timeout:
			return w.of.named(plain(err), false)
		}
		w.of.leave()
		select {
		case <-ctx.Done():
			return nil
		case <-w.core.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ErrClosed
}

// watchEnded: the server has ended the watch, for good.
type watchEnded struct{ last clientv3.WatchResponse }

func (e *watchEnded) Error() string { return "the watch has ended: " + e.last.Err().Error() }

// open opens the watch, by a time, and reads it until it ends: nil if deliver
// returned false.
func (w *tail) open(ctx context.Context, until time.Time, deliver func(clientv3.WatchResponse) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.core.ctx, func() { cancel(ErrClosed) })()
	late := time.AfterFunc(time.Until(until), func() { cancel(ErrSilent) })
	defer late.Stop()
	near, _, err := w.of.connect(ctx)
	if err != nil {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return err
	}
	by := w.by
	if by == nil {
		by = w.of.watcher(near)
	}
	key, end := w.seg.there()
	if w.seg.to == "" && len(clientv3.OpWatch(w.seg.from, w.opts...).RangeBytes()) == 0 {
		key, end = []byte(w.seg.keyThere(w.seg.from)), nil
	}
	number, key := by.begun.number(key, w.next)
	defer by.begun.forget(number)
	opts := append(w.opts[:len(w.opts):len(w.opts)], clientv3.WithCreatedNotify(), clientv3.WithRev(w.next), func(op *clientv3.Op) {
		op.WithKeyBytes(key)
		op.WithRangeBytes(end)
	})
	for r := range by.Watch(watchContext(ctx), string(key), opts...) {
		late.Stop() // it is open, or refused
		if r.Created && w.next == 0 {
			w.now = r.Header.Revision
			w.compare(ctx, time.Until(until)/2)
		}
		switch err := r.Err(); {
		case err != nil && (errors.Is(err, rpctypes.ErrNoLeader) || isCutOff(err) && r.CompactRevision == 0 && !r.Canceled):
			return err
		case err != nil:
			return &watchEnded{r}
		case !deliver(r):
			return nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errWatchBroken
}

// compare finds out why the member has a lower revision than the client has seen of the cluster, where it has opened the watch. Either it is behind, and
// events are left out until it isn't; or the cluster was restored or made anew, and these are news. Without an answer in time it is taken to be behind.
func (w *tail) compare(ctx context.Context, within time.Duration) {
	if w.now >= w.after {
		return
	}
	l := w.core.links[w.seg.cluster]
	w.core.mu.Lock()
	seen := l.seen() // perhaps of the new one, if others have found that out
	w.core.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	has, err := w.core.revision(ctx, w.seg.cluster)
	if err != nil || has >= w.after {
		return
	}
	if has < seen {
		l.goneBack(seen, has)
	}
	w.after = 0
}

// revision is that of a cluster, at or above all that was acknowledged.
func (c *core) revision(ctx context.Context, at int) (revision int64, err error) {
	of := c.links[at].cluster
	for _, key := range c.routes.keysIn(of.at) {
		err = of.with(ctx, func(by *clientv3.Client) error {
			a, err := by.Get(ctx, string(key), clientv3.WithCountOnly())
			if err == nil {
				revision = a.Header.GetRevision()
			}
			return err
		})
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			break
		}
	}
	return revision, err
}

var errWatchBroken = errors.New("the watch was broken off")

// turn translates a response into the composition's keys, and reports whether
// it is empty then.
func (w *tail) turn(r *clientv3.WatchResponse) (empty bool) {
	switch {
	case r.Created:
		if w.next == 0 {
			w.next = r.Header.Revision + 1
			if w.after > r.Header.Revision { // what is told is that all events behind it come
				r.Header = proto.CloneOf(r.Header)
				r.Header.Revision = w.after
			}
		}
		again := w.opened
		w.opened = true
		return again || !clientv3.OpWatch(w.seg.from, w.opts...).IsCreatedNotify()
	case r.IsProgressNotify():
		w.next = max(w.next, r.Header.Revision+1)
		return false
	}
	news := r.Events[:0]
	for _, e := range r.Events {
		w.next = max(w.next, e.Kv.ModRevision+1)
		if (e.Kv.ModRevision > w.after || e.Kv.ModRevision <= w.now) && !isReserved(string(e.Kv.Key)) {
			news = append(news, w.seg.event(e))
		}
	}
	r.Events = news
	return len(news) == 0
}

// event translates an event, which is not shared, into the composition's keys.
func (r *route) event(e *clientv3.Event) *clientv3.Event {
	if r.strip {
		r.turnOne(e.Kv)
		r.turnOne(e.PrevKv)
	}
	return e
}

// refused is a watch that ends with an error. Only etcd's client can make such
// a response.
func refused(ctx context.Context, err error) clientv3.WatchChan {
	w := clientv3.NewWatchFromWatchClient(refuser{err}, clientv3.NewCtxClient(ctx))
	return w.Watch(ctx, "refused")
}

type refuser struct{ err error }

func (r refuser) Watch(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse], error) {
	return nil, &final{r.err}
}

// final is an error on which etcd's watcher doesn't retry.
type final struct{ error }

func (f *final) GRPCStatus() *status.Status {
	return status.New(codes.FailedPrecondition, f.Error())
}
func (f *final) Unwrap() error { return f.error }
