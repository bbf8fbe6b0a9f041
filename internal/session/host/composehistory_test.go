package host

import (
	"bytes"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/test/compose/osc"
)

// history is what has happened, for the checker of orders. What has no place in a client's order is an update of
// a client of its own.
func (w *composedWorld) history(done []effects) (all []*osc.Op) {
	var deeds []*deed
	for _, a := range w.apps {
		deeds = append(deeds, a.deeds...)
	}
	slices.SortFunc(deeds, (*deed).compare)
	placed := make([]effects, len(w.clusters))
	for i := range placed {
		placed[i] = effects{}
	}
	for _, d := range deeds {
		in := w.in(d)
		switch {
		case d.kind == "across" || d.kind == "pair" || d.kind == "sync":
		case d.effect != 0:
			if w.orderly(d, in[0]) {
				placed[in[0]][d.effect] = d
				all = append(all, w.updated(int(d.fork), in[0], d.effect, d))
			}
		case d.err != nil || d.heard == 0 || d.sel.at > 0 || w.stoodIn(d): // which shows the past
		case d.rev == 0:
			all = append(all, w.spanned(d)...)
		default:
			all = append(all, w.read(d, in[0]))
		}
	}
	w.counts.Ordered += len(all)
	stranger := int(w.forks.Load())
	for i, c := range w.clusters {
		last := int64(0)
		for _, kv := range c.ledger.all {
			if rev := kv.ModRevision; rev != last && placed[i][rev] == nil {
				stranger++
				all = append(all, w.updated(stranger, i, rev, nil))
			}
			last = kv.ModRevision
		}
	}
	return all
}

const never = 1<<63 - 1

// updated is the update of a revision; d is nil if nothing is known of it.
func (w *composedWorld) updated(client, cluster int, rev int64, d *deed) *osc.Op {
	o := &osc.Op{Client: client, Cluster: cluster, Update: true, Revision: rev, Keys: map[string]osc.Version{}, End: never, Failed: true}
	if d != nil {
		o.Start = d.begun
		if d.err == nil {
			o.End, o.Failed = d.ended, false
		}
	}
	for _, kv := range w.clusters[cluster].ledger.events("", "\xff\xff", rev, rev) {
		o.Keys[string(kv.Key)] = osc.Version{Value: string(kv.Value)}
	}
	return o
}

// read is the read of one cluster, at a revision. A key that isn't there has the version of its deletion.
func (w *composedWorld) read(d *deed, cluster int) *osc.Op {
	o := &osc.Op{Client: int(d.fork), Cluster: cluster, Keys: map[string]osc.Version{}, Start: d.begun, End: d.ended}
	l := &w.clusters[cluster].ledger
	for _, k := range l.keys {
		if !slices.ContainsFunc(w.roads.names(cluster, k), func(name string) bool { return within(name, d.key, d.end) }) {
			continue
		}
		var v osc.Version
		for _, kv := range l.byKey[k] {
			if kv.ModRevision <= d.rev {
				v = osc.Version{Value: string(kv.Value), Mod: kv.ModRevision}
			}
		}
		o.Keys[k] = v
	}
	return o
}

// spanned are the reads of one over several clusters, as far as they have found something.
func (w *composedWorld) spanned(d *deed) (all []*osc.Op) {
	kvs := slices.Clone(d.kvs)
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	for _, kv := range kvs {
		r := w.roads.of(string(kv.Key))
		if n := len(all); n == 0 || all[n-1].Cluster != r.cluster {
			all = append(all, &osc.Op{Client: int(d.fork), Cluster: r.cluster, Keys: map[string]osc.Version{}, Start: d.begun, End: d.ended})
		}
		key := r.there(string(kv.Key))
		if was := w.clusters[r.cluster].ledger.at(key, kv.ModRevision); was != nil { // an answer may be of keys alone
			all[len(all)-1].Keys[key] = osc.Version{Value: string(was.Value), Mod: kv.ModRevision}
		}
	}
	return all
}
