package host

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watched is what a watch is for.
type watched struct {
	key, end string
	prev     bool // with what there was before
	filter   []pb.WatchCreateRequest_FilterType
}

// sidecarWatch is a watch of etcd's client.
type sidecarWatch struct {
	watched
	n       int64 // in the order in which all things happened
	from    int64 // its start revision; 0: now
	floor   int64 // what anybody had been told when it was opened
	cancel  context.CancelFunc
	left    bool // cancelled before the end
	settled bool // it goes on at the end
	leads   bool // it requires a leader

	created int64 // the revision at which it was
	notes   []clientv3.WatchResponse
	at      []time.Duration // when they came
	last    int64           // the revision of the latest event
	ended   error
	endedAt time.Duration
	closed  time.Duration // when its channel was: without an error, too, if the member has cancelled the watch
}

func (v *sidecarWatch) String() string {
	return fmt.Sprintf("watch of %q..%q from %d, of %d; %d notes, %v", v.key, v.end, v.from, v.created, len(v.notes), v.ended)
}

// somewhen is a revision, mostly one that there has been.
func (a *sidecarApp) somewhen() int64 {
	return max(1, a.w.cluster.ledger.reached.Load()+int64(a.rng.IntN(40)-35))
}

func (a *sidecarApp) watch() {
	v := &sidecarWatch{watched: watched{key: a.key(), prev: a.one(3)}}
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if !a.one(3) {
		v.key, v.end = a.span()
		opts = append(opts, clientv3.WithRange(v.end))
	}
	if v.prev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if a.one(2) {
		v.from = a.somewhen()
		opts = append(opts, clientv3.WithRev(v.from))
	}
	ctx, cancel := context.WithCancel(context.Background())
	if v.leads = a.one(4); v.leads {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	a.mu.Lock()
	v.n, v.cancel, v.floor = a.w.next(), cancel, a.w.cluster.ledger.answered.Load()
	a.watches = append(a.watches, v)
	a.mu.Unlock()
	notes := a.c.Watch(ctx, v.key, opts...)
	a.watching.Go(func() {
		for r := range notes {
			a.noted(v, r)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		v.closed = a.w.now()
	})
}

func (a *sidecarApp) noted(v *sidecarWatch, r clientv3.WatchResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Created {
		if v.created == 0 {
			v.created = r.Header.Revision
		}
		return
	}
	a.w.noted.Store(int64(a.w.now()))
	v.notes, v.at = append(v.notes, r), append(v.at, a.w.now())
	if err := r.Err(); err != nil {
		v.ended, v.endedAt = err, a.w.now()
	}
	if n := len(r.Events); n > 0 {
		v.last = r.Events[n-1].Kv.ModRevision
		raise(&a.w.cluster.ledger.answered, v.last)
	}
}

// lacks tells whether a watch has not brought all changes yet.
func (a *sidecarApp) lacks() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.w.cluster.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range a.watches {
		from, end := a.at.span(v.key, v.end)
		for _, c := range l.changes {
			if !v.left && v.ended == nil && v.closed == 0 && c.Main >= v.from && c.Main > max(v.last, v.created) && within(string(c.Kv.Message().Key), from, end) {
				return true
			}
		}
	}
	return false
}

// unwatch ends a watch.
func (a *sidecarApp) unwatch() {
	if len(a.watches) == 0 {
		return
	}
	v := a.watches[a.rng.IntN(len(a.watches))]
	a.mu.Lock()
	v.left = true
	a.mu.Unlock()
	v.cancel()
}
