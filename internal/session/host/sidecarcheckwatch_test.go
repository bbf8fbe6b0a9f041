package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// checkWatch: its events are all there are, from its start on.
func (a *sidecarApp) checkWatch(v *sidecarWatch) {
	w := a.w
	w.counts.Watches++
	var got []*clientv3.Event
	var at []time.Duration
	last := int64(0)
	for i, r := range v.notes {
		for j, e := range r.Events {
			if rev := e.Kv.ModRevision; rev < last || rev == last && j == 0 {
				w.found("app %d: %v: note %d brings revision %d behind %d", a.id, v, i, rev, last)
			}
			last = e.Kv.ModRevision
			at = append(at, v.at[i])
		}
		got = append(got, r.Events...)
	}
	w.counts.Events += len(got)
	a.checkSight(v, v.watched, got, at)
	through := int64(everything)
	switch compacted := w.cluster.ledger.compacted.Load(); {
	case v.left, v.leads && errors.Is(v.ended, rpctypes.ErrNoLeader):
		through = last
	case errors.Is(v.ended, rpctypes.ErrCompacted) && max(v.from, last+1) <= compacted:
		w.counts.Compacted++
		through = last
	case v.ended != nil && a.governed(v.ended.Error(), v.endedAt), v.ended == nil && !v.settled && (a.governed(oldRevision, v.closed) || a.governed("permission denied", v.closed)):
		w.counts.Governed++
		through = last
	case v.ended != nil:
		w.found("app %d: %v has ended", a.id, v)
		through = last
	}
	first := v.from
	if first == 0 {
		if first = v.created + 1; v.created == 0 { // it was never open
			first = everything
		}
		if v.created != 0 && v.created < v.floor && a.follows() {
			w.found("app %d: %v, and %d had been told before", a.id, v, v.floor)
		}
		for len(got) > 0 && got[0].Kv.ModRevision == v.created { // from there etcd's client goes on when the stream breaks before anything has come
			got = got[1:]
		}
	}
	a.compareEvents(v, v.watched, got, first, through)
}

// follows tells whether watches follow others, not a member's now, which may be behind.
func (a *sidecarApp) follows() bool { return !a.at.Alone && !a.w.flips() && !a.w.plan.Users }

// compareEvents compares events with those that there were from one revision through another.
func (a *sidecarApp) compareEvents(v fmt.Stringer, of watched, got []*clientv3.Event, first, through int64) {
	w, l := a.w, &a.w.cluster.ledger
	from, end := a.at.span(of.key, of.end)
	want := slices.DeleteFunc(l.events(from, end, first, through), func(kv *mvccpb.KeyValue) bool {
		filter := pb.WatchCreateRequest_NOPUT
		if kv.Version == 0 {
			filter = pb.WatchCreateRequest_NODELETE
		}
		return slices.Contains(of.filter, filter)
	})
	names := a.at.named(want)
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			w.found("app %d: %v brings too many, from %d through %d: %v", a.id, v, first, through, got[i])
		case i >= len(got):
			w.found("app %d: %v lacks, from %d through %d, %v", a.id, v, first, through, want[i])
		case (got[i].Type == clientv3.EventTypeDelete) != (names[i].Version == 0) || !proto.Equal(got[i].Kv, names[i]):
			w.found("app %d: %v brings %v, not %v", a.id, v, got[i], names[i])
		case of.prev && !same(prevOf(got[i]), a.at.named(l.find(string(want[i].Key), "", want[i].ModRevision-1))) && want[i].ModRevision > l.compacted.Load():
			w.found("app %d: %v brings %v, before which there was %v", a.id, v, got[i], l.find(string(want[i].Key), "", want[i].ModRevision-1))
		default:
			continue
		}
		return
	}
}

func prevOf(e *clientv3.Event) []*mvccpb.KeyValue {
	if e.PrevKv == nil {
		return nil
	}
	return []*mvccpb.KeyValue{e.PrevKv}
}
