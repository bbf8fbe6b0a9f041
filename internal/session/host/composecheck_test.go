package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	case errors.Is(d.err, compose.ErrClosed) && d.fork != a.fork:
		n.Closed++
	case errors.Is(d.err, compose.ErrNoRoute) && (r == nil || ranged),
		errors.Is(d.err, compose.ErrReserved) && r != nil && (ranged || strings.HasPrefix(r.there(d.key), "/stoa/")),
		(errors.Is(d.err, compose.ErrSpans) || errors.Is(d.err, compose.ErrTransactions)) && ranged,
		errors.Is(d.err, context.DeadlineExceeded) && d.left && ranged,
		errors.Is(d.err, rpctypes.ErrKeyNotFound) && d.kind == "refused",
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
	l := &w.clusters[cluster].ledger
	for _, k := range l.keys {
		for _, name := range w.roads.names(cluster, k) {
			if kv := l.at(k, rev); kv != nil && within(name, from, end) {
				kv = proto.Clone(kv).(*mvccpb.KeyValue)
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
	case "get":
		if want := w.find(in[0], d.key, d.end, rev); !same(d.kvs, want) {
			w.found("%v shows %v, not %v", d, d.kvs, want)
		}
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

// checkSpan: an answer of several pieces has versions that were there.
func (w *composedWorld) checkSpan(d *deed) {
	if d.kind != "get" || d.end == "" {
		w.found("%v has no revision", d)
	}
	w.counts.Spans++
	for i, kv := range d.kvs {
		r := w.roads.of(string(kv.Key))
		if r == nil || !within(string(kv.Key), d.key, d.end) || i > 0 && string(d.kvs[i-1].Key) >= string(kv.Key) {
			w.found("%v shows %q", d, kv.Key)
			continue
		}
		if was := w.find(r.cluster, string(kv.Key), "", kv.ModRevision); !same(was, []*mvccpb.KeyValue{kv}) {
			w.found("%v shows %v, there was %v", d, kv, was)
		}
	}
}

// acked is the highest revision of a cluster's updates that were answered before something happened.
func (e effects) acked(before int64) (rev int64) {
	for r, d := range e {
		if d.err == nil && d.heard != 0 && d.heard < before && d.kind != "across" {
			rev = max(rev, r)
		}
	}
	return rev
}

// orderly tells whether the effect of an update has a place in its client's order though it was not answered.
func (w *composedWorld) orderly(d *deed, cluster int) bool {
	return d.err == nil || w.plan.Kinds[cluster] == compose.Stoa
}

// checkOrder compares revisions with those of what the client has sent and seen before.
func (a *composedApp) checkOrder(done []effects) {
	type happened struct {
		n    int64
		deed *deed
		note *composedNote
	}
	var all []happened
	for _, d := range a.deeds {
		all = append(all, happened{n: d.n, deed: d})
	}
	for i := range a.notes {
		if n := &a.notes[i]; len(n.Events) > 0 {
			all = append(all, happened{n: n.n, note: n})
		}
	}
	slices.SortFunc(all, func(a, b happened) int { return int(a.n - b.n) })
	w := a.w
	fork, seen, why := int64(0), make([]int64, len(w.clusters)), make([]any, len(w.clusters))
	see := func(cluster int, rev int64, by any) {
		if rev > seen[cluster] {
			seen[cluster], why[cluster] = rev, by
		}
	}
	for _, h := range all {
		if h.note != nil {
			c := w.cluster(h.note.Cluster)
			see(c, h.note.Revision, h.note)
			if u := done[c][h.note.Revision]; u != nil && u.kind != "across" {
				for i := range w.clusters { // what the event's author knew of
					see(i, done[i].acked(u.n), h.note)
				}
			}
			continue
		}
		d := h.deed
		if d.fork != fork {
			fork, seen = d.fork, make([]int64, len(w.clusters))
		}
		in := w.in(d)
		if d.kind == "across" || d.kind == "pair" || len(in) != 1 {
			continue
		}
		c := in[0]
		keys := d.end == "" || d.key < d.end // a range without any shows nothing, and what several requests have answered has no revision
		if at := a.acrossBefore(d, c); d.err == nil && keys && d.rev != 0 && d.rev < at && slices.ContainsFunc(w.roads.stretches(d.key, d.end), func(s stretch) bool { return s.road.locks }) {
			w.found("%v is behind a transaction that took effect at %d", d, at)
		}
		if d.synced || d.kind == "sync" && d.err == nil {
			see(c, done[c].acked(d.n), "what was answered before")
		}
		switch {
		case d.effect != 0 && w.orderly(d, c):
			if d.effect <= seen[c] {
				w.found("%v took effect at %d, and %d was seen: %v", d, d.effect, seen[c], why[c])
			}
			see(c, d.effect, d)
		case d.heard != 0 && d.err == nil && d.rev != 0:
			if d.rev < seen[c] {
				w.found("%v was answered at %d, and %d was seen: %v", d, d.rev, seen[c], why[c])
			}
			see(c, d.rev, d)
		}
	}
}

// acrossBefore is the last effect on a cluster of the client's transactions over clusters before a request. Only what has keys that may be
// locked waits for it.
func (a *composedApp) acrossBefore(d *deed, cluster int) (rev int64) {
	for _, o := range a.deeds {
		if cluster < 2 && o.kind == "across" && o.fork == d.fork && o.err == nil && o.n < d.n {
			rev = max(rev, o.both[cluster])
		}
	}
	return rev
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
			if done[i][kv.ModRevision] != nil || strings.HasPrefix(key, "/stoa/") || w.plan.Mirror && i == 1 && strings.HasPrefix(key, "u/") {
				continue
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
