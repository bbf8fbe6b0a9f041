package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
)

// effects are what requests have done to a cluster, by revision.
type effects map[int64]*deed

// check holds what the apps were told against what has taken effect.
func (w *composedWorld) check() {
	done := make([]effects, len(w.clusters))
	w.done = done
	for i, c := range w.clusters {
		c.ledger.close()
		done[i] = effects{}
		if c.ledger.at(keptKey, everything) == nil {
			w.found("cluster %d: %s was deleted", i, keptKey)
		}
	}
	for _, a := range w.apps {
		for _, d := range a.deeds {
			w.resolve(d, done)
		}
	}
	for _, a := range w.apps {
		for _, d := range a.deeds {
			w.counts.Asked++
			switch {
			case d.heard == 0:
				w.found("no answer to %v", d)
			case d.err != nil:
				a.checkError(d)
			default:
				w.counts.Answered++
				w.checkAnswer(d)
			}
		}
		a.checkOrder(done)
		a.checkFeeds()
		for _, h := range a.leases {
			a.checkLease(h)
		}
		for _, l := range a.looks {
			a.checkLook(l)
		}
	}
	w.checkAcross()
	w.checkOthers(done)
	if len(w.failures) > 0 {
		return
	}
	if err := osc.Check(w.history(done)); err != nil {
		w.found("%v", err)
	}
}

// in are the clusters of a request.
func (w *composedWorld) in(d *deed) (all []int) {
	switch {
	case d.kind == "sync":
		return []int{w.cluster(d.key)}
	case d.kind == "across", d.kind == "pair":
		return []int{0, 1}
	case d.end == "":
		if r := w.roads.of(d.key); r != nil {
			all = append(all, r.cluster)
		}
		return all
	}
	for _, s := range w.roads.stretches(d.key, d.end) {
		if !slices.Contains(all, s.road.cluster) {
			all = append(all, s.road.cluster)
		}
	}
	if r := w.roads.of(d.key); len(all) == 0 && r != nil { // a range that ends before it begins
		all = append(all, r.cluster)
	}
	return all
}

// resolve finds what a request has done.
func (w *composedWorld) resolve(d *deed, done []effects) {
	mark := func(cluster int, rev int64) {
		if o := done[cluster][rev]; o != nil && o != d {
			w.found("revision %d of cluster %d is that of %v and of %v", rev, cluster, o, d)
		}
		done[cluster][rev], d.effect = d, rev
		if d.kind == "across" {
			d.both[cluster] = rev
		}
	}
	var revs []int64
	in, keys := w.in(d), []string{d.key}
	switch d.kind {
	case "put":
	case "txn":
		keys = append(keys, d.other)
	case "script":
		w.resolveScript(d, in, mark)
		return
	case "across":
		keys = append(keys, d.other)
	case "delete":
		if d.err == nil && d.heard != 0 && d.deleted > 0 && len(in) == 1 {
			mark(in[0], d.rev)
		}
		return
	default:
		return
	}
	for i, k := range keys {
		r := w.roads.of(k)
		if r == nil {
			continue
		}
		found := w.clusters[r.cluster].ledger.written(r.there(k), d.value)
		if len(found) > 1 {
			w.found("%v took effect at %v", d, found)
		}
		revs = append(revs, found...)
		if len(found) > 0 {
			mark(r.cluster, found[0])
		}
		if i > 0 && len(revs) == 1 || d.kind == "txn" && len(revs) == 2 && revs[0] != revs[1] {
			w.found("%v took effect in part: %v", d, revs)
		}
	}
	if d.heard != 0 && d.err == nil && len(revs) == 0 && (d.kind != "txn" || d.says) {
		w.found("%v has had no effect", d)
	}
	if d.err != nil && !d.unknown() && len(revs) > 0 {
		w.found("%v took effect at %v", d, revs)
	}
	if d.kind != "across" && d.heard != 0 && d.err == nil && len(revs) > 0 && revs[0] != d.rev {
		w.found("%v took effect at %v", d, revs)
	}
}

// locks tells whether keys of a request can be locked by transactions over clusters.
func (w *composedWorld) locks(d *deed) bool {
	r := w.roads.of(d.key)
	return r != nil && r.locks || d.end != "" && slices.ContainsFunc(w.roads.stretches(d.key, d.end), func(s stretch) bool { return s.road.locks })
}

// checkError: it is one of those that are documented.
func (a *composedApp) checkError(d *deed) {
	w := a.w
	n := &w.counts
	var of *compose.ClusterError
	r := w.roads.of(d.key)
	ranged := d.end != ""
	switch in := w.in(d); {
	case errors.Is(d.err, errLost):
		n.Unknown++
	case d.held != nil && errors.Is(d.err, compose.ErrSessionExpired) && !d.held.lasts():
		n.Lost++
	case w.standsIn(d):
		n.Extended++
	case w.plan.Users && errors.Is(d.err, rpctypes.ErrPermissionDenied):
		n.Denied++
	case errors.As(d.err, &of):
		switch {
		case !slices.Contains(in, w.cluster(of.Cluster)) && d.kind != "across" && d.kind != "pair" && !w.locks(d): // which wait for all before, or for the home of who has locked a key
			w.found("%v: it isn't of that cluster", d)
		case of.Unknown && !d.writes() && d.kind != "pair":
			w.found("%v: it is no update", d)
		case isRefusal(of):
			w.found("%v: that is no lost answer", d)
		case errors.Is(d.err, sdk.ErrOvertaken) && !a.writesBehind(d):
			w.found("%v: nothing was sent behind it", d)
		case errors.Is(d.err, sdk.ErrOvertaken):
			n.Overtaken++
		case of.Unknown:
			n.Unknown++
		default:
			n.NotDone++
		}
	case errors.Is(d.err, compose.ErrSpans) && d.kind == "refused" && a.far != nil:
		n.Refused++
	case errors.Is(d.err, compose.ErrClosed) && d.fork != a.fork:
		n.Closed++
	case errors.Is(d.err, compose.ErrNoRoute) && (r == nil || ranged),
		errors.Is(d.err, compose.ErrReserved) && r != nil && (ranged || strings.HasPrefix(r.there(d.key), "/stoa/")),
		(errors.Is(d.err, compose.ErrSpans) || errors.Is(d.err, compose.ErrTransactions)) && ranged,
		errors.Is(d.err, context.DeadlineExceeded) && d.left && ranged,
		errors.Is(d.err, rpctypes.ErrKeyNotFound) && d.kind == "refused",
		errors.Is(d.err, rpctypes.ErrCompacted) && d.sel.at > 0 && (len(in) != 1 || d.sel.at < w.clusters[in[0]].ledger.compacted.Load()),
		errors.Is(d.err, rpctypes.ErrFutureRev) && d.sel.at > 0, // checkOrder looks at it
		errors.Is(d.err, compose.ErrNotOverSpan) && ranged && d.sel.needsRevision(),
		d.held != nil && errors.Is(d.err, rpctypes.ErrLeaseNotFound) && (!d.held.lasts() || d.held.gone || d.held.left),
		d.held != nil && errors.Is(d.err, sdk.ErrSessionClosed) && (d.held.gone || d.held.left),
		errors.Is(d.err, rpctypes.ErrNoSpace) && d.writes():
		n.Refused++
	default:
		w.found("%v: no such error is documented", d)
	}
}

// isRefusal tells whether a cluster has answered.
func isRefusal(err error) bool {
	var of rpctypes.EtcdError
	return errors.As(err, &of) && slices.Contains([]codes.Code{codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument}, of.Code())
}

func (a *composedApp) writesBehind(d *deed) bool {
	return slices.ContainsFunc(a.deeds, func(o *deed) bool {
		return o.fork == d.fork && o.n > d.n && o.writes() && slices.ContainsFunc(a.w.in(o), func(c int) bool { return slices.Contains(a.w.in(d), c) })
	})
}

// find is what is in a range at a revision of a cluster.
func (w *composedWorld) find(cluster int, from, end string, rev int64) (kvs []*mvccpb.KeyValue) {
	return w.roads.find(cluster, w.clusters[cluster].ledger.find("", "\xff\xff", rev), from, end)
}

// find is what is in a range, of all that is in a cluster.
func (all roads) find(cluster int, there []*mvccpb.KeyValue, from, end string) (kvs []*mvccpb.KeyValue) {
	for _, kv := range there {
		for _, name := range all.names(cluster, string(kv.Key)) {
			if within(name, from, end) {
				kv = proto.CloneOf(kv)
				kv.Key = []byte(name)
				kvs = append(kvs, kv)
			}
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return kvs
}

// checkAnswer compares an answer with the state at its revision.
func (w *composedWorld) checkAnswer(d *deed) {
	in, r := w.in(d), w.roads.of(d.key)
	if d.end == "" && d.kind != "sync" && (r == nil || strings.HasPrefix(r.there(d.key), "/stoa/")) {
		w.found("%v is of no key that a client has", d)
	}
	switch d.kind {
	case "pair":
		if len(d.kvs) != 0 && (len(d.kvs) != 2 || string(d.kvs[0].Value) != string(d.kvs[1].Value)) {
			w.found("%v shows half of a transaction: %v", d, d.kvs)
		}
		w.counts.Across++
		return
	case "across":
		w.counts.Across++
		return
	case "sync":
		return
	case "refused":
		w.found("%v was carried out", d)
		return
	}
	if w.stoodIn(d) {
		return
	}
	if d.rev == 0 {
		w.checkSpan(d)
		return
	}
	if len(in) != 1 {
		w.found("%v has the revision of one cluster, and is of %v", d, in)
		return
	}
	rev := d.rev
	switch d.kind {
	case "put":
		w.checkPut(d, in[0])
	case "get":
		w.checkRead(d, in[0])
	case "script":
		w.checkScript(d, in[0])
	case "delete":
		if d.deleted > 0 {
			rev--
		}
		if want := w.find(in[0], d.key, d.end, rev); int(d.deleted) != len(want) || !same(d.kvs, want) {
			w.found("%v has deleted %v, not %v", d, d.kvs, want)
		}
	case "txn":
		if d.says {
			rev--
		}
		there := w.find(in[0], d.key, "", rev)
		if holds := (len(there) == 0) == d.absent; holds != d.says || !d.says && !same(d.kvs, there) {
			w.found("%v: succeeded is %v, it shows %v, of %v", d, d.says, d.kvs, there)
		}
	}
}

// checkPut: the key has the lease that it was put with.
func (w *composedWorld) checkPut(d *deed, cluster int) {
	lease := int64(0)
	if d.held != nil {
		lease = int64(d.held.id)
	}
	if kv := w.clusters[cluster].ledger.at(w.roads.of(d.key).there(d.key), d.rev); kv.GetLease() != lease {
		w.found("%v has the lease %d", d, kv.GetLease())
	}
}

// checkRead compares a read with the state at its revision, or at the one that it asks for.
func (w *composedWorld) checkRead(d *deed, cluster int) {
	rev := d.rev
	if d.sel.at > 0 {
		rev = d.sel.at
	}
	got := &pb.RangeResponse{Kvs: d.kvs, More: d.more, Count: d.count}
	if how := d.sel.differs(got, w.find(cluster, d.key, d.end, rev)); how != "" || rev > d.rev {
		w.found("%v: %s", d, how)
	}
}

// checkSpan: an answer of several pieces has versions that were there.
func (w *composedWorld) checkSpan(d *deed) {
	if d.kind != "get" || d.end == "" {
		w.found("%v has no revision", d)
	}
	w.counts.Spans++
	s := &d.sel
	if n := int64(len(d.kvs)); s.limit > 0 && n > s.limit || d.more && n != s.limit || d.count < n || s.countOnly && n > 0 || s.limit == 0 && !s.countOnly && d.count != n {
		w.found("%v shows %d keys of %d, more: %v", d, n, d.count, d.more)
	}
	shown := map[string]bool{}
	for i, kv := range d.kvs {
		key := string(kv.Key)
		r := w.roads.of(key)
		if r == nil || !within(key, d.key, d.end) || i > 0 && s.compare(d.kvs[i-1], kv) > 0 || shown[key] {
			w.found("%v shows %q", d, key)
			continue
		}
		shown[key] = true
		if was := w.find(r.cluster, key, "", kv.ModRevision); len(was) == 0 || !proto.Equal(s.shown(was[0]), kv) {
			w.found("%v shows %v, there was %v", d, kv, was)
		}
	}
}

// checkAcross: transactions over clusters have one order in all of them.
func (w *composedWorld) checkAcross() {
	for _, key := range []string{"x", "y"} {
		var orders [2][]string
		for i := range orders {
			for _, kv := range w.clusters[i].ledger.byKey[fmt.Sprintf("t%d/%s", i, key)] {
				orders[i] = append(orders[i], string(kv.Value))
			}
		}
		if !slices.Equal(orders[0], orders[1]) {
			w.found("transactions have put %v in one cluster, %v in the other", orders[0], orders[1])
		}
	}
}

// checkOthers: what no request has done that was answered is a deletion that may have taken effect.
func (w *composedWorld) checkOthers(done []effects) {
	for i, c := range w.clusters {
		for _, kv := range c.ledger.all {
			key := string(kv.Key)
			if done[i][kv.ModRevision] != nil || strings.HasPrefix(key, "/stoa/") || strings.HasPrefix(key, "/em/") || w.plan.Mirror && i == 1 && strings.HasPrefix(key, "u/") {
				continue
			}
			if kv.Version == 0 && c.ledger.at(key, kv.ModRevision-1).GetLease() != 0 {
				continue // checkLease looks at it
			}
			if kv.Version != 0 || !w.mayHaveDeleted(i, key) {
				w.found("cluster %d has, of no client, %v", i, kv)
			}
		}
	}
}

func (w *composedWorld) mayHaveDeleted(cluster int, key string) bool {
	for _, a := range w.apps {
		for _, d := range a.deeds {
			if d.kind == "delete" && d.err != nil && d.unknown() && slices.ContainsFunc(w.roads.names(cluster, key), func(name string) bool { return within(name, d.key, d.end) }) {
				return true
			}
		}
	}
	return false
}
