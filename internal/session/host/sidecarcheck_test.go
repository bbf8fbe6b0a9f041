package host

import (
	"errors"
	"slices"
	"strings"
	"time"

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
			if w.plan.Users {
				a.checkRights(d)
			}
		}
		for _, v := range a.watches {
			a.checkWatch(v)
		}
		for _, d := range a.queues {
			a.checkQueue(d)
		}
		for _, o := range a.observed {
			a.checkObserved(o)
		}
		for _, s := range a.streams {
			w.counts.Streams++
			a.checkStream(s)
		}
	}
	for _, l := range w.leases {
		w.checkLease(l)
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
	case code == codes.Unavailable && !a.w.disturbed(d.begun, d.ended) && !(d.writes() && errors.Is(rpctypes.Error(d.err), rpctypes.ErrTimeoutDueToConnectionLost) && a.dismissed(d)):
		a.found(d, "nothing was in its way")
		return
	case code == codes.Unavailable, d.left && (code == codes.DeadlineExceeded || code == codes.Canceled):
		n.Unknown++
		return
	case errors.Is(rpctypes.Error(d.err), rpctypes.ErrNoSpace) && d.writes(), errors.Is(rpctypes.Error(d.err), rpctypes.ErrLeaseNotFound) && d.lease != 0:
		n.Refused++
	case a.governed(d.err.Error(), d.ended):
		n.Governed++
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
		if kv := l.at(a.at.Namespace+d.key, d.rev); kv.GetLease() != int64(d.lease) {
			a.found(d, "the key has the lease %d, not %d", kv.GetLease(), d.lease)
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
	case d.local && a.cached(d) && !a.w.disturbed(d.begun, d.ended):
		a.w.counts.Seen++
		if seen := a.seen(d); seen > d.rev {
			a.found(d, "its connection had told %d before", seen)
		}
	}
}

// cached tells whether the sidecar keeps what is asked for in memory, as long as there are no extensions.
func (a *sidecarApp) cached(d *sidecarCall) bool {
	from, end := a.at.span(d.key, d.end)
	return a.follows() && slices.ContainsFunc(a.at.Cache, func(prefix string) bool {
		return strings.HasPrefix(from, prefix) && end <= clientv3.GetPrefixRangeEnd(prefix)
	})
}

// seen is the highest revision that the app's connection had told it before a call.
func (a *sidecarApp) seen(d *sidecarCall) (rev int64) {
	dialed := time.Duration(0)
	for _, at := range a.dialed {
		if at <= d.ended {
			dialed = at
		}
	}
	for _, o := range a.calls {
		if o.heard != 0 && o.heard < d.n && o.err == nil && o.ended > dialed && o.begun > dialed {
			rev = max(rev, o.rev)
		}
	}
	return rev
}

// flips tells whether extensions were registered.
func (w *sidecarWorld) flips() bool {
	return slices.ContainsFunc(w.plan.Trouble, func(do act) bool { return do.What == "flip" })
}

// disturbed tells whether, between two times, connections may have broken, or a sidecar or the cluster not been able to answer.
func (w *sidecarWorld) disturbed(from, to time.Duration) bool {
	from -= 5 * time.Second // what a trouble, or the start, may have left behind
	calm := time.Duration(w.calmed.Load())
	if w.plan.Lives[0]+w.plan.Lives[1] > 0 && from < calm || from < 0 {
		return true
	}
	return slices.ContainsFunc(w.troubles, func(t [2]time.Duration) bool { return t[0] <= to && t[1] >= from })
}

// checkOthers: what no request has done that was answered is a deletion that may have taken effect.
func (w *sidecarWorld) checkOthers(done map[int64]*sidecarCall) {
	for _, kv := range w.cluster.ledger.all {
		key := string(kv.Key)
		if strings.HasPrefix(key, "/stoa/") || strings.HasPrefix(key, "/em/") {
			continue
		}
		if isQueued(key) && w.queued(kv) {
			continue
		}
		if was := w.cluster.ledger.at(key, kv.ModRevision-1); kv.Version == 0 && done[kv.ModRevision] == nil && was.GetLease() != 0 && !w.mayHaveDeleted(key) && w.ended(was.GetLease(), kv.ModRevision) {
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
