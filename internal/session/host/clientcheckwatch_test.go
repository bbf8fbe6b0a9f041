package host

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	sdk "github.com/stoa-kv/stoa/client"
)

// noted is an event and the notification that brought it.
type noted struct {
	*clientv3.Event
	note int
}

func (e noted) rev() int64 { return e.Kv.ModRevision }

// checkWatches compares what watches have brought with what they are for.
func (a *app) checkWatches() {
	brought := map[*viewed][]noted{}
	ends := map[*viewed]error{}
	ended := map[*viewed]int{}
	var top int64
	for i, n := range a.notes {
		a.w.counts.Notes++
		v := a.viewOf(n.Watch)
		if v == nil {
			a.w.found("app %d: a notification of a watch that was never open: %v", a.id, n)
			continue
		}
		if v.shut >= 0 && i >= v.shut {
			a.found(v.ask, "a notification has come behind Close: %v", n)
		}
		if n.Err != nil {
			ends[v], ended[v] = n.Err, i
			continue
		}
		if _, over := ends[v]; over {
			a.found(v.ask, "a notification has come behind its end: %v", n)
		}
		for j, e := range n.Events {
			a.w.counts.Events++
			if last := brought[v]; len(last) > 0 {
				if r := last[len(last)-1].rev(); e.Kv.ModRevision < r || e.Kv.ModRevision == r && last[len(last)-1].note != i {
					a.found(v.ask, "it brings an event of revision %d behind one of %d", e.Kv.ModRevision, r)
				}
			}
			if v.level != sdk.Fast && (v.kind != "await" || len(brought[v]) > 0) { // that one's first event is an answer
				if e.Kv.ModRevision < top && e.Kv.ModRevision > v.before {
					a.found(v.ask, "event %d of notification %d has revision %d, behind one of %d of another watch; %d had come when it was opened", j, i, e.Kv.ModRevision, top, v.before)
				}
				top = max(top, e.Kv.ModRevision)
			}
			brought[v] = append(brought[v], noted{e, i})
		}
	}
	for _, v := range a.watches {
		if v.w == nil {
			if len(brought[v]) > 0 {
				a.found(v.ask, "it isn't open and has events")
			}
			continue
		}
		a.checkWatch(v, brought[v], ends[v], ended[v])
	}
}

// wanted are the events of a watch between two revisions.
func (v *viewed) wanted(l *ledger, first, last int64) (kvs []*mvccpb.KeyValue) {
	for _, kv := range l.events(v.key, v.end, first, last) {
		deletes := kv.Version == 0
		if deletes && v.filter == "delete" || !deletes && v.filter == "put" {
			continue
		}
		kvs = append(kvs, kv)
	}
	return kvs
}

// checkWatch: its events are all there are, from its start on.
func (a *app) checkWatch(v *viewed, got []noted, end error, endNote int) {
	l := &a.w.ledger
	first, last := a.start(v, got)
	if v.kind == "await" {
		if len(got) == 0 {
			return
		}
		v.key, first = a.w.plan.Count, got[0].rev()
	}
	for i, x := range a.asks {
		if x.err != nil || i <= v.index || !x.done || x.told == 0 {
			continue
		}
		covers := x.kind == "progress" || v.level != sdk.Fast && x.level != sdk.Fast && (x.reads() || x.kind == "txn" || x.kind == "delete" || x.kind == "call")
		for _, e := range got {
			if x.reads() && x.level == sdk.Fast && v.level != sdk.Fast && e.note >= x.told && e.rev() <= x.rev {
				a.w.counts.Ahead++
				break
			}
		}
		if !covers || v.shut >= 0 && x.when > v.shutWhen || end != nil && x.told > endNote {
			continue
		}
		if errors.Is(end, rpctypes.ErrCompacted) && l.compacted.Load() <= x.rev {
			a.found(v.ask, "it is told that %d is compacted, behind the answer to request %d, which reflects %d", l.compacted.Load(), i+1, x.rev)
		}
		last = max(last, x.rev)
		for _, e := range got {
			if e.note >= x.told && e.rev() <= x.rev {
				a.found(v.ask, "it brings an event of revision %d behind the answer to request %d, %v, which reflects %d", e.rev(), i+1, x, x.rev)
				break
			}
		}
	}
	if errors.Is(end, rpctypes.ErrCompacted) {
		a.w.counts.Compacted++
	}
	want := v.wanted(l, first, last)
	for i := 0; i < max(len(want), len(got)); i++ {
		switch {
		case i >= len(want):
			a.found(v.ask, "from %d through %d it brings too many: %v", first, last, got[i])
		case i >= len(got):
			a.found(v.ask, "from %d through %d it lacks %v", first, last, want[i])
		case !a.isEvent(v, got[i], want[i]):
			a.found(v.ask, "from %d through %d it brings %v, not %v", first, last, got[i], want[i])
		default:
			continue
		}
		return
	}
	if end != nil && !errors.Is(end, rpctypes.ErrCompacted) && !a.refused(end, a.notes[endNote].at) && !(a.lost() && errors.Is(end, a.s.Err())) && !errors.Is(end, sdk.ErrSessionClosed) {
		a.found(v.ask, "it has ended with %v", end)
	}
}

// start is the revision of the first event that a watch has to bring, and that of the last one which it has brought.
func (a *app) start(v *viewed, got []noted) (first, last int64) {
	if first = v.from; first == 0 {
		first = v.opened + 1
		for _, x := range a.asks[v.index+1:] {
			if e := a.effect(x); e != 0 {
				first = min(first, e)
				break
			}
		}
	}
	if len(got) > 0 {
		last = got[len(got)-1].rev()
		if v.from == 0 {
			first = min(first, got[0].rev())
			for _, x := range a.asks[:v.index] {
				if e := a.effect(x); e >= first {
					a.found(v.ask, "it brings revision %d, and from now on is behind %d", first, e)
				}
			}
		}
	}
	return first, last
}

func (a *app) isEvent(v *viewed, got noted, want *mvccpb.KeyValue) bool {
	var prev *mvccpb.KeyValue
	if v.withPrev {
		prev = a.w.ledger.at(string(want.Key), want.ModRevision-1)
	}
	kv := got.Kv
	if got.PrevKv == nil && want.ModRevision <= a.w.ledger.compacted.Load() {
		prev = nil // compacted, as in etcd
	}
	if want.Version == 0 {
		return got.Type == clientv3.EventTypeDelete && string(kv.Key) == string(want.Key) && kv.ModRevision == want.ModRevision && proto.Equal(got.PrevKv, prev)
	}
	return got.Type == clientv3.EventTypePut && proto.Equal(kv, want) && proto.Equal(got.PrevKv, prev)
}
