package host

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client/compose"
)

// checkFeeds compares what feeds have brought with what they are for.
func (a *composedApp) checkFeeds() {
	for _, v := range a.watches {
		a.checkWatch(v)
	}
	for _, v := range a.tails {
		a.checkTail(v)
	}
	for _, d := range a.deeds {
		if d.effect != 0 && d.err == nil && d.kind != "across" {
			a.checkDependency(d)
		}
	}
}

// checkWatch: its events are all there are, from its start on.
func (a *composedApp) checkWatch(v *composedWatch) {
	w, c := a.w, v.road.cluster
	a.guess(v)
	var got []*clientv3.Event
	var end error
	last := int64(0)
	for i := range a.notes {
		n := &a.notes[i]
		if n.watch != v {
			continue
		}
		if end != nil {
			w.found("app %d: %v: a notification has come behind its end: %v", a.id, v, n.Notification)
		}
		end = n.Err
		if len(n.Events) > 0 && n.Revision <= last {
			w.found("app %d: %v brings revision %d behind %d", a.id, v, n.Revision, last)
		}
		if len(n.Events) > 0 && n.Events[0].Kv.ModRevision != n.Revision {
			w.found("app %d: %v brings %v as revision %d", a.id, v, n.Events[0], n.Revision)
		}
		last = max(last, n.Revision)
		got = append(got, n.Events...)
		w.counts.Events += len(n.Events)
	}
	through := last
	var of *compose.ClusterError
	switch {
	case errors.As(end, &of) && of.Cluster == v.Cluster():
		w.counts.Ended++
	case errors.Is(end, rpctypes.ErrCompacted) && max(last, v.Begin()) < w.clusters[c].ledger.compacted.Load():
		w.counts.Compacted++
	case errors.Is(end, compose.ErrClosed) && v.fork != a.fork:
	case end != nil:
		w.found("app %d: %v has ended with %v", a.id, v, end)
	case v.fork == a.fork, a.far != nil:
		through = everything
	}
	if v.asked > 0 && v.Begin() != v.asked-1 {
		w.found("app %d: %v, and not behind %d", a.id, v, v.asked-1)
	}
	for _, d := range a.deeds {
		if d.n > v.n && d.effect != 0 && v.asked == 0 && d.kind != "across" && slices.Contains(w.in(d), c) && d.effect <= v.Begin() {
			w.found("app %d: %v, and later the client has sent %v", a.id, v, d)
		}
	}
	want := w.events(v, through)
	for i := 0; i < max(len(want), len(got)); i++ {
		switch {
		case i >= len(want):
			w.found("app %d: %v brings too many, through %d: %v", a.id, v, through, got[i])
		case i >= len(got):
			w.found("app %d: %v lacks, through %d, %v", a.id, v, through, want[i])
		case (got[i].Type == clientv3.EventTypeDelete) != (want[i].Version == 0) || string(got[i].Kv.Key) != string(want[i].Key) || got[i].Kv.ModRevision != want[i].ModRevision || want[i].Version != 0 && !proto.Equal(got[i].Kv, want[i]):
			w.found("app %d: %v brings %v, not %v", a.id, v, got[i], want[i])
		default:
			continue
		}
		return
	}
}

// events are what a watch has to bring through a revision.
func (w *composedWorld) events(v *composedWatch, through int64) (kvs []*mvccpb.KeyValue) {
	for _, kv := range w.clusters[v.road.cluster].ledger.events("", "\xff\xff", v.Begin()+1, through) {
		for _, name := range w.roads.names(v.road.cluster, string(kv.Key)) {
			if within(name, v.from, v.to) {
				kv = proto.Clone(kv).(*mvccpb.KeyValue)
				kv.Key = []byte(name)
				kvs = append(kvs, kv)
			}
		}
	}
	return kvs
}

// checkDependency: behind an update come no events of other clusters that the client had seen the state of when it sent it.
func (a *composedApp) checkDependency(d *deed) {
	w, c := a.w, a.w.in(d)[0]
	seen := make([]int64, len(w.clusters))
	for _, o := range a.deeds {
		if in := w.in(o); o.fork == d.fork && o.err == nil && o.heard != 0 && o.heard < d.n && o.rev > 0 && len(in) == 1 {
			seen[in[0]] = max(seen[in[0]], o.rev)
		}
	}
	for i := range a.notes {
		if n := &a.notes[i]; n.fork == d.fork && n.n < d.n && len(n.Events) > 0 {
			at := w.cluster(n.Cluster)
			seen[at] = max(seen[at], n.Revision)
		}
	}
	reached := false
	for i := range a.notes {
		n := &a.notes[i]
		if len(n.Events) == 0 || n.fork != d.fork {
			continue
		}
		at := w.cluster(n.Cluster)
		switch {
		case n.watch == nil || n.watch.n > d.n:
		case at == c && n.Revision >= d.effect:
			reached = true
		case at != c && reached && n.Revision <= seen[at]:
			w.found("app %d: an event of %s, of revision %d, comes behind one of the client's own %v, which had seen %d there", a.id, n.Cluster, n.Revision, d, seen[at])
		}
	}
}
