package host

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose"
)

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
	return d.err == nil || w.plan.Sidecars == 0 && w.plan.Kinds[cluster] == compose.Stoa
}

// happened is a request or a notification.
type happened struct {
	n    int64
	deed *deed
	note *composedNote
}

// of is the client's number.
func (h happened) of() int64 {
	if h.note != nil {
		return h.note.fork
	}
	return h.deed.fork
}

// happened is all that the client has sent, and that has been taken from its watches, in order.
func (a *composedApp) happened() []happened {
	var all []happened
	for _, d := range a.deeds {
		all = append(all, happened{n: d.n, deed: d})
	}
	for i := range a.notes {
		if n := &a.notes[i]; len(n.Events) > 0 {
			all = append(all, happened{n: n.n, note: n})
		}
	}
	for _, v := range a.tails {
		for _, r := range v.got {
			if n := len(r.events); n > 0 && a.far == nil {
				all = append(all, happened{n: r.n, note: &composedNote{compose.Notification{Cluster: a.w.clusters[v.cluster].name, Revision: r.events[n-1].Kv.ModRevision}, r.n, v.fork, nil}})
			}
		}
	}
	slices.SortFunc(all, func(a, b happened) int { return int(a.n - b.n) })
	return all
}

// sight is what a client has seen of a cluster, and by what.
type sight struct {
	rev int64
	by  any
}

// checkOrder compares revisions with those of what the client has sent and seen before.
func (a *composedApp) checkOrder(done []effects) {
	w := a.w
	var seen []sight
	forks := map[int64][]sight{}
	see := func(cluster int, rev int64, by any) {
		if rev > seen[cluster].rev {
			seen[cluster] = sight{rev, by}
		}
	}
	for _, h := range a.happened() {
		if seen = forks[h.of()]; seen == nil {
			seen = make([]sight, len(w.clusters))
			forks[h.of()] = seen
			for i := range seen { // a connection begins with syncs
				see(i, done[i].acked(w.dialed[h.of()]), "what was answered before its connection")
			}
		}
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
		in := w.in(d)
		if d.kind == "across" || d.kind == "pair" || len(in) != 1 {
			continue
		}
		c := in[0]
		keys := d.end == "" || d.key < d.end // a range without any shows nothing, and what several requests have answered has no revision
		if at := a.acrossBefore(d, c); d.err == nil && keys && d.rev != 0 && d.rev < at && slices.ContainsFunc(w.roads.stretches(d.key, d.end), func(s stretch) bool { return s.road.locks }) {
			w.found("%v is behind a transaction that took effect at %d", d, at)
		}
		if d.synced && (d.err == nil || a.far == nil) || d.kind == "sync" && d.err == nil {
			see(c, done[c].acked(d.n), "what was answered before")
		}
		switch {
		case errors.Is(d.err, rpctypes.ErrFutureRev) && d.sel.at <= seen[c].rev:
			w.found("%v, and %d was seen: %v", d, seen[c].rev, seen[c].by)
		case d.effect != 0 && w.orderly(d, c):
			if d.effect <= seen[c].rev {
				w.found("%v took effect at %d, and %d was seen: %v", d, d.effect, seen[c].rev, seen[c].by)
			}
			see(c, d.effect, d)
		case d.heard != 0 && d.err == nil && d.rev != 0:
			if d.rev < seen[c].rev {
				w.found("%v was answered at %d, and %d was seen: %v", d, d.rev, seen[c].rev, seen[c].by)
			}
			see(c, d.rev, d)
		}
	}
}

// acrossBefore is the last effect on a cluster of the client's transactions over clusters before a request. Only what has their keys, which
// may be locked, waits for it: others may be read before the transaction has reached their cluster.
func (a *composedApp) acrossBefore(d *deed, cluster int) (rev int64) {
	for _, o := range a.deeds {
		if cluster >= 2 || o.kind != "across" || o.fork != d.fork || o.err != nil || o.n >= d.n {
			continue
		}
		if within([]string{o.key, o.other}[cluster], d.key, d.end) {
			rev = max(rev, o.both[cluster])
		}
	}
	return rev
}
