package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client/compose"
)

// composedTail is a watch of one range, beside feeds.
type composedTail struct {
	n, fork  int64
	key, end string
	cluster  int
	from     int64 // start revision; 0: what the client has seen
	filter   string
	prev     bool
	told     bool      // it is told when it is open
	cut      []stretch // of one over several clusters, by etcd's client
	part     bool      // it is one of those
	cancel   context.CancelFunc
	canceled bool

	mu     sync.Mutex
	done   bool  // the run is over
	opened int64 // revision that it was open at
	openN  int64 // when that was known
	got    []tailEvents
	err    error
	over   bool
	closed bool // it was over before the run was, without a word
}

// tailEvents are what one response has brought: events, or, if there are none, that there are none up to a revision.
type tailEvents struct {
	n        int64
	events   []*clientv3.Event
	revision int64
}

func (v *composedTail) String() string {
	return fmt.Sprintf("client %d: watch of %q..%q from %d, filter %q, open at %d, %d responses, ended %v with %v", v.fork, v.key, v.end, v.from, v.filter, v.opened, len(v.got), v.over, v.err)
}

// follow opens a watch of one range. Half of them are of keys that may be mirrored.
func (a *composedApp) follow() {
	v := &composedTail{n: a.w.next(), fork: a.fork, prev: a.one(2), told: !a.one(4)}
	if v.key, v.end = a.span(); a.one(2) {
		v.key, v.end = "u/", "u0"
	}
	if a.far != nil && a.one(3) {
		v.key = a.some("/c", "t")
		v.end = prefixEnd(v.key)
	}
	cut := a.w.roads.stretches(v.key, v.end)
	switch whole := len(cut) == 1 && cut[0].from == v.key && cut[0].to == v.end; {
	case whole:
		v.cluster = cut[0].road.cluster
	case a.far == nil || len(cut) < 2:
		return
	default:
		v.cut = cut
	}
	opts := spanOptions(v.end)
	add := func(asked bool, opt clientv3.OpOption) {
		if asked {
			opts = append(opts, opt)
		}
	}
	if a.one(3) && v.cut == nil {
		v.from = max(1, a.w.clusters[v.cluster].ledger.reached.Load()+int64(a.rng.IntN(20)-15))
	}
	v.filter = a.some("", "", "", "put", "delete")
	add(v.from > 0, clientv3.WithRev(v.from))
	add(v.prev, clientv3.WithPrevKV())
	add(v.told, clientv3.WithCreatedNotify())
	add(a.one(5), clientv3.WithProgressNotify())
	add(a.one(5), clientv3.WithFragment())
	add(v.filter == "put", clientv3.WithFilterPut())
	add(v.filter == "delete", clientv3.WithFilterDelete())
	var ctx context.Context
	ctx, v.cancel = context.WithCancel(context.Background())
	responses := a.asks().Watch(ctx, v.key, opts...)
	a.tails = append(a.tails, v)
	a.following.Go(func() { v.read(a.w, responses) })
}

func (v *composedTail) read(w *composedWorld, responses clientv3.WatchChan) {
	for r := range responses {
		n := w.next()
		v.mu.Lock()
		switch {
		case v.done:
		case v.err != nil:
			w.found("%v: a response has come behind its end: %v", v, r)
		case r.Err() != nil:
			v.err = r.Err()
		case r.Created && (!v.told || v.opened > 0):
			w.found("%v: it is told again that it is open: %v", v, r)
		case r.Created:
			v.opened, v.openN = r.Header.Revision, n
		default:
			v.got = append(v.got, tailEvents{n, r.Events, r.Header.Revision})
		}
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over, v.closed = true, !v.done && v.err == nil
}

// unfollow ends one of the watches.
func (a *composedApp) unfollow() {
	if len(a.tails) > 0 {
		v := a.tails[a.rng.IntN(len(a.tails))]
		v.canceled = true
		v.cancel()
	}
}

// progress asks for it on all watches.
func (a *composedApp) progress() {
	if a.far != nil {
		return // it is refused, and the stream ends
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+a.rng.IntN(200))*time.Millisecond)
	defer cancel()
	_ = a.c.RequestProgress(ctx)
}

// endTails waits for the end of all watches: because their client is closed, or all is done.
func (a *composedApp) endTails(done bool) {
	for _, v := range a.tails {
		if done {
			v.mu.Lock()
			v.done = true
			v.mu.Unlock()
			v.cancel()
		}
	}
	a.w.within("the end of watches", a.following.Wait)
}

// checkTail: the events are all there are, from the start on.
func (a *composedApp) checkTail(v *composedTail) {
	if v.cut != nil {
		a.checkOver(v)
		return
	}
	w := a.w
	least, most := a.knew(v)
	var got []*clientv3.Event
	last, none := int64(0), int64(0)
	for _, r := range v.got {
		if len(r.events) == 0 {
			none = max(none, r.revision)
		}
		for _, e := range r.events {
			if e.Kv.ModRevision < last || e.Kv.ModRevision <= none {
				w.found("app %d: %v brings revision %d behind %d, and behind the word that there was none up to %d", a.id, v, e.Kv.ModRevision, last, none)
			}
			last = e.Kv.ModRevision
			got = append(got, e)
			w.counts.Followed++
		}
	}
	for a.far != nil && v.from == 0 && len(got) > 0 && got[0].Kv.ModRevision == v.opened { // from there etcd's client goes on when the stream breaks before anything has come
		got = got[1:]
	}
	first, through := v.from, max(last, none)
	if v.from == 0 {
		if first = most + 1; len(got) > 0 {
			first = min(first, got[0].Kv.ModRevision)
		}
		if v.opened == 0 { // nobody knows when
			if first = everything; len(got) > 0 {
				first = got[0].Kv.ModRevision
			}
		}
		if len(got) > 0 && got[0].Kv.ModRevision <= least {
			w.found("app %d: %v brings revision %d, and %d was seen before", a.id, v, got[0].Kv.ModRevision, least)
		}
	}
	if !v.part {
		a.checkTailEnd(v, through)
		a.closes(v, v.cluster)
	}
	switch {
	case v.err != nil || v.canceled || v.fork != a.fork || v.from == 0 && v.opened == 0:
	case v.closed && a.far != nil:
		w.counts.Ended++
	default:
		through = everything
	}
	want := w.tailEvents(v, first, through)
	for i := 0; i < max(len(want), len(got)); i++ {
		switch {
		case i >= len(want):
			w.found("app %d: %v brings too many, from %d through %d: %v", a.id, v, first, through, got[i])
		case i >= len(got):
			w.found("app %d: %v lacks, from %d through %d, %v", a.id, v, first, through, want[i])
		case !w.isTailEvent(v, got[i], want[i]):
			w.found("app %d: %v brings %v, not %v", a.id, v, got[i], want[i])
		default:
			continue
		}
		return
	}
}

// closes: etcd's client closes the channel of a watch that its server has cancelled, and doesn't tell the reason. This was that one of the watch's clusters kept
// silent.
func (a *composedApp) closes(v *composedTail, in ...int) {
	if !v.closed || a.far == nil || v.canceled || v.fork != a.fork {
		return
	}
	var names []string
	for _, at := range in {
		names = append(names, a.w.clusters[at].name)
	}
	if !a.far.silenced(names) {
		a.w.found("app %d: %v is closed, for no reason that its sidecar has told: %v", a.id, v, a.far.ended)
	}
}

// checkTailEnd: it ends only when it was canceled, its client closed, its events compacted, or its cluster cut off.
func (a *composedApp) checkTailEnd(v *composedTail, through int64) {
	w := a.w
	compacted := w.clusters[v.cluster].ledger.compacted.Load()
	if through = max(through, v.from-1); v.from == 0 {
		through = max(through, v.opened)
	}
	switch {
	case errors.Is(v.err, rpctypes.ErrCompacted) && through < compacted:
		w.counts.Compacted++
	case v.fork != a.fork && (v.err == nil || strings.Contains(v.err.Error(), compose.ErrClosed.Error())):
	case v.canceled && (v.err == nil || strings.Contains(v.err.Error(), context.Canceled.Error())):
	case v.err != nil && strings.HasSuffix(v.err.Error(), "watcher range is empty") && len(v.got) == 0:
	case v.err != nil && strings.Contains(v.err.Error(), w.clusters[v.cluster].name):
		w.counts.Ended++
	case v.err != nil:
		w.found("app %d: %v has ended with %v", a.id, v, v.err)
	}
}

// knew is what the client had seen of a cluster when it opened a watch, at least, and what it had seen when that was open, at most.
func (a *composedApp) knew(v *composedTail) (least, most int64) {
	w := a.w
	if most = v.opened; a.far != nil {
		return 0, most
	}
	for _, d := range a.deeds {
		in := w.in(d)
		if d.fork != v.fork || len(in) != 1 || in[0] != v.cluster || d.rev == 0 {
			continue
		}
		if d.heard != 0 && d.heard < v.n && d.kind != "across" && d.kind != "pair" {
			least = max(least, d.rev)
		}
		if d.n < v.openN {
			most = max(most, d.rev, d.effect)
		}
	}
	for i := range a.notes {
		if n := &a.notes[i]; n.fork == v.fork && w.cluster(n.Cluster) == v.cluster && len(n.Events) > 0 && n.n < v.openN {
			most = max(most, n.Revision)
		}
	}
	for _, o := range a.tails {
		for _, r := range o.got {
			if o.fork == v.fork && o.cluster == v.cluster && r.n < v.openN && len(r.events) > 0 {
				most = max(most, r.events[len(r.events)-1].Kv.ModRevision)
			}
		}
	}
	return least, most
}

// tailEvents are what a watch has to bring.
func (w *composedWorld) tailEvents(v *composedTail, first, through int64) (kvs []*mvccpb.KeyValue) {
	for _, kv := range w.clusters[v.cluster].ledger.events("", "\xff\xff", first, through) {
		deletes := kv.Version == 0
		for _, name := range w.roads.names(v.cluster, string(kv.Key)) {
			if within(name, v.key, v.end) && (deletes && v.filter != "delete" || !deletes && v.filter != "put") {
				kv = proto.CloneOf(kv)
				kv.Key = []byte(name)
				kvs = append(kvs, kv)
			}
		}
	}
	return kvs
}

func (w *composedWorld) isTailEvent(v *composedTail, got *clientv3.Event, want *mvccpb.KeyValue) bool {
	var prev *mvccpb.KeyValue
	l := &w.clusters[v.cluster].ledger
	if before := w.find(v.cluster, string(want.Key), "", want.ModRevision-1); v.prev && len(before) > 0 {
		prev = before[0]
	}
	if got.PrevKv == nil && (want.ModRevision <= l.compacted.Load() || w.clusters[1].ledger.compacted.Load() > 0 && strings.HasPrefix(v.key, "u/")) {
		prev = nil // compacted, here or at the copy, as in etcd
	}
	if !proto.Equal(got.PrevKv, prev) || string(got.Kv.Key) != string(want.Key) || got.Kv.ModRevision != want.ModRevision {
		return false
	}
	if want.Version == 0 {
		return got.Type == clientv3.EventTypeDelete
	}
	return got.Type == clientv3.EventTypePut && proto.Equal(got.Kv, want)
}
