package compose

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/mirror"
)

// progressEach is the interval at which a watch of a mirror finds out that there were no
// events, so that it can go on at home without asking for what is compacted there.
const progressEach = 10 * time.Second

// watchesView reports whether a watch can begin at a mirror. Progress is a matter of home.
func (w *tail) watchesView() bool {
	s := &w.seg
	if s.view == noView || s.several {
		return false
	}
	op := clientv3.OpWatch(s.from, w.opts...)
	return !op.IsProgressNotify() && !touchesReserved(op.KeyBytes(), op.RangeBytes())
}

// runView delivers events from the mirror until deliver returns false, or the mirror can't
// tell them: then the watch goes on at home.
func (w *tail) runView(ctx context.Context, deliver func(clientv3.WatchResponse) bool) (goesOn bool) {
	opening, cancel := context.WithTimeout(ctx, viewTimeout)
	m, at := w.markNow(opening)
	cancel()
	if m == nil || w.next != 0 && w.next <= m.Revision {
		return true
	}
	if home := w.core.links[w.seg.view].view.home.Load(); home != m.Source && (home != 0 || m.Revision < w.after) {
		return true // it is of the cluster that was there before, and nobody goes on with it; or what was seen is of that one
	}
	near, _, err := w.core.links[w.seg.view].view.near.Load().of.connect(ctx)
	if err != nil {
		return true
	}
	if w.next != 0 {
		w.after = max(w.after, w.next-1)
	}
	created := clientv3.WatchResponse{Created: true, Header: &pb.ResponseHeader{ClusterId: m.Source, Revision: m.Revision}}
	if !w.turn(&created) && !deliver(created) {
		return false
	}
	by := clientv3.NewWatcher(near.Client)
	defer by.Close()
	j := &joiner{after: m.Revision, done: m.Revision}
	goesOn = w.join(ctx, by, j, m.Source, at, deliver)
	w.next = max(w.next, j.done+1)
	return goesOn
}

// markNow is the mark of the mirror and the revision of the target, nil if nothing can be read
// there.
func (w *tail) markNow(ctx context.Context) (*mirror.Mark, int64) {
	near, _, err := w.core.links[w.seg.view].view.near.Load().of.connect(ctx)
	if err != nil {
		return nil, 0
	}
	r, err := near.Get(ctx, w.seg.mark)
	if err != nil || len(r.Kvs) == 0 {
		return nil, 0
	}
	m, err := mirror.ParseMark(r.Kvs[0].Value)
	if err != nil || m.Phase != mirror.At || m.Keys != w.seg.said {
		return nil, 0
	}
	return &m, r.Header.Revision
}

// join watches keys and mark from behind a revision of the target.
func (w *tail) join(ctx context.Context, by clientv3.Watcher, j *joiner, home uint64, at int64, deliver func(clientv3.WatchResponse) bool) (goesOn bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.core.ctx, cancel)()
	op := clientv3.OpWatch(w.seg.from, w.opts...)
	opts := append(w.opts[:len(w.opts):len(w.opts)], clientv3.WithRev(at+1))
	stream := watchContext(ctx)
	keys := by.Watch(stream, string(op.KeyBytes()), opts...)
	marks := by.Watch(stream, w.seg.mark, clientv3.WithRev(at+1))
	progress := time.NewTicker(progressEach)
	defer progress.Stop()
	var seen [2]int64 // up to which revision of the target each watch is known to have no more
	for {
		select {
		case r, ok := <-keys:
			if !ok || r.Err() != nil {
				return true
			}
			j.changed(r.Events)
			if r.IsProgressNotify() {
				seen[0] = r.Header.Revision
			}
		case r, ok := <-marks:
			if !ok || r.Err() != nil {
				return true
			}
			for _, e := range r.Events {
				j.marked(e)
			}
			if r.IsProgressNotify() {
				seen[1] = r.Header.Revision
			}
		case <-progress.C:
			_ = by.RequestProgress(stream)
			continue
		}
		events, err := j.take()
		w.core.told.Add(int64(len(events)))
		j.complete(min(seen[0], seen[1]))
		r := clientv3.WatchResponse{Header: &pb.ResponseHeader{ClusterId: home, Revision: j.done}, Events: events}
		if len(events) > 0 && !w.turn(&r) && !deliver(r) {
			return false
		}
		if err != nil {
			return true
		}
	}
}
