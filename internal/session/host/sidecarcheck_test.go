package host

import (
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// check holds what the apps were told against what has taken effect.
func (w *sidecarWorld) check() {
	w.cluster.ledger.close()
	done := map[int64]*sidecarCall{}
	for _, a := range w.apps {
		for _, d := range a.calls {
			a.resolve(d, done)
		}
	}
	for _, a := range w.apps {
		for _, d := range a.calls {
			w.counts.Asked++
			switch {
			case d.heard == 0:
				w.found("no answer to %v", d)
			case d.err != nil:
				a.checkError(d)
			default:
				w.counts.Answered++
				a.checkAnswer(d)
			}
			a.checkTime(d)
		}
		for _, v := range a.watches {
			a.checkWatch(v)
		}
	}
	w.checkOthers(done)
}

func (a *sidecarApp) found(d *sidecarCall, format string, args ...any) {
	a.w.found("app %d: %v: "+format, append([]any{a.id, d}, args...)...)
}

// mine are the keys that a range has, as the sidecar's clients see them.
func (s sidecarSettings) mine(l *ledger, from, end string, rev int64) (kvs []*mvccpb.KeyValue) {
	from, end = s.span(from, end)
	return s.named(l.find(from, end, rev))
}

// named are key-values as the sidecar's clients see them.
func (s sidecarSettings) named(kvs []*mvccpb.KeyValue) (all []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		kv = proto.CloneOf(kv)
		kv.Key = kv.Key[len(s.Namespace):]
		all = append(all, kv)
	}
	return all
}

// resolve finds what a write has done.
func (a *sidecarApp) resolve(d *sidecarCall, done map[int64]*sidecarCall) {
	l := &a.w.cluster.ledger
	var revs []int64
	switch d.kind {
	case "put":
		revs = l.written(a.at.Namespace+d.key, d.value)
	case "txn":
		revs = l.written(a.at.Namespace+d.key, d.value)
		if second := l.written(a.at.Namespace+d.other, d.value); !slices.Equal(revs, second) {
			a.found(d, "it took effect at %v and %v", revs, second)
		}
	case "delete":
		if d.heard != 0 && d.err == nil && d.count > 0 {
			revs = []int64{d.rev}
		}
	}
	if len(revs) > 1 {
		a.found(d, "it took effect at %v", revs)
	}
	if len(revs) > 0 {
		if o := done[revs[0]]; o != nil {
			a.found(d, "its revision is that of %v", o)
		}
		done[revs[0]], d.effect = d, revs[0]
		a.w.counts.Effects++
	}
}

// checkError: it is one of those that are documented.
func (a *sidecarApp) checkError(d *sidecarCall) {
	n := &a.w.counts
	switch code := codeOf(d.err); {
	case code == codes.Unavailable, d.left && (code == codes.DeadlineExceeded || code == codes.Canceled):
		n.Unknown++
		return
	case errors.Is(rpctypes.Error(d.err), rpctypes.ErrNoSpace) && d.writes():
		n.Refused++
	default:
		a.found(d, "no such error is documented")
	}
	if d.effect != 0 {
		a.found(d, "it took effect at %d", d.effect)
	}
}

func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	if st, is := status.FromError(err); is {
		return st.Code()
	}
	return status.FromContextError(err).Code()
}

// checkAnswer compares an answer with the state at its revision.
func (a *sidecarApp) checkAnswer(d *sidecarCall) {
	l := &a.w.cluster.ledger
	switch d.kind {
	case "put":
		if d.effect != d.rev {
			a.found(d, "it took effect at %d", d.effect)
		}
	case "get":
		want := a.at.mine(l, d.key, d.end, d.rev)
		if d.count != int64(len(want)) {
			a.found(d, "it counts %d, not %d", d.count, len(want))
		}
		if d.descends {
			slices.Reverse(want)
		}
		more := false
		if more = d.limit > 0 && int(d.limit) < len(want) && !d.counts; more {
			want = want[:d.limit]
		}
		if d.counts {
			want = nil
		}
		if more != d.more || !same(d.kvs, want) {
			a.found(d, "it shows %v (more: %v), not %v", d.kvs, d.more, want)
		}
	case "delete":
		rev := d.rev
		if d.count > 0 {
			rev--
		}
		if want := a.at.mine(l, d.key, d.end, rev); int(d.count) != len(want) || !same(d.kvs, want) {
			a.found(d, "it has deleted %v, not %v", d.kvs, want)
		}
		if left := a.at.mine(l, d.key, d.end, d.rev); len(left) > 0 {
			a.found(d, "there is %v", left)
		}
	case "txn", "read txn":
		rev := d.rev
		if d.says && d.kind == "txn" {
			rev--
		}
		there := a.at.mine(l, d.key, "", rev)
		if holds := (len(there) == 0) == d.absent; holds != d.says {
			a.found(d, "succeeded is %v, of %v", d.says, there)
		}
		if both := append(there, a.at.mine(l, d.other, "", rev)...); rev == d.rev && !same(d.kvs, both) {
			a.found(d, "it shows %v, not %v", d.kvs, both)
		}
		if d.kind == "txn" && d.says && d.effect != d.rev {
			a.found(d, "it took effect at %d", d.effect)
		}
	}
}

// checkTime: a request takes effect between its call and its answer.
func (a *sidecarApp) checkTime(d *sidecarCall) {
	switch {
	case d.effect != 0 && d.effect <= d.floor:
		a.found(d, "it took effect at %d, and %d had been told before", d.effect, d.floor)
	case d.heard == 0 || d.err != nil:
	case d.rev < d.floor && !d.local:
		a.found(d, "%d had been told before", d.floor)
	}
}

// checkWatch: its events are all there are, from its start on.
func (a *sidecarApp) checkWatch(v *sidecarWatch) {
	w := a.w
	w.counts.Watches++
	var got []*clientv3.Event
	last := int64(0)
	for i, r := range v.notes {
		for j, e := range r.Events {
			if rev := e.Kv.ModRevision; rev < last || rev == last && j == 0 {
				w.found("app %d: %v: note %d brings revision %d behind %d", a.id, v, i, rev, last)
			}
			last = e.Kv.ModRevision
		}
		got = append(got, r.Events...)
	}
	w.counts.Events += len(got)
	through := int64(everything)
	switch compacted := w.cluster.ledger.compacted.Load(); {
	case v.left:
		through = last
	case errors.Is(v.ended, rpctypes.ErrCompacted) && max(v.from, last+1) <= compacted:
		w.counts.Compacted++
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
		if v.created != 0 && v.created < v.floor {
			w.found("app %d: %v, and %d had been told before", a.id, v, v.floor)
		}
		for len(got) > 0 && got[0].Kv.ModRevision == v.created { // from there etcd's client goes on when the stream breaks before anything has come
			got = got[1:]
		}
	}
	a.compareEvents(v, got, first, through)
}

// compareEvents compares events with those that there were from one revision through another.
func (a *sidecarApp) compareEvents(v *sidecarWatch, got []*clientv3.Event, first, through int64) {
	w, l := a.w, &a.w.cluster.ledger
	from, end := a.at.span(v.key, v.end)
	want := l.events(from, end, first, through)
	names := a.at.named(want)
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			w.found("app %d: %v brings too many, from %d through %d: %v", a.id, v, first, through, got[i])
		case i >= len(got):
			w.found("app %d: %v lacks, from %d through %d, %v", a.id, v, first, through, want[i])
		case (got[i].Type == clientv3.EventTypeDelete) != (names[i].Version == 0) || !proto.Equal(got[i].Kv, names[i]):
			w.found("app %d: %v brings %v, not %v", a.id, v, got[i], names[i])
		case v.prev && !same(prevOf(got[i]), a.at.named(l.find(string(want[i].Key), "", want[i].ModRevision-1))) && want[i].ModRevision > l.compacted.Load():
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

// checkOthers: what no request has done that was answered is a deletion that may have taken effect.
func (w *sidecarWorld) checkOthers(done map[int64]*sidecarCall) {
	for _, kv := range w.cluster.ledger.all {
		key := string(kv.Key)
		if strings.HasPrefix(key, "/stoa/") {
			continue
		}
		if d := done[kv.ModRevision]; d == nil && (kv.Version != 0 || !w.mayHaveDeleted(key)) {
			w.found("the cluster has, of no client, %v", kv)
		}
	}
}

func (w *sidecarWorld) mayHaveDeleted(key string) bool {
	for _, a := range w.apps {
		for _, d := range a.calls {
			if d.kind != "delete" || d.heard != 0 && d.err == nil || errors.Is(rpctypes.Error(d.err), rpctypes.ErrNoSpace) {
				continue
			}
			if from, end := a.at.span(d.key, d.end); within(key, from, end) {
				return true
			}
		}
	}
	return false
}
