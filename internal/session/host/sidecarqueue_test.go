package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/lockpb"
)

// queueCall is a call of the services v3lock and v3election, whose locks and elections are keys NAME/LEASE: the oldest is the owner's.
type queueCall struct {
	kind  string
	n     int64 // in the order in which all things happened
	name  string
	key   string // that is held: the answer of a lock or campaign, and what others are about
	lease clientv3.LeaseID
	value string
	since int64 // the revision at which the key was created, as an election tells it
	floor int64 // what anybody had been told when it was made

	begun, ended time.Duration
	err          error
	answered     bool
	rev          int64
	kv           *mvccpb.KeyValue // the leader's
	reached      int64            // by the cluster, when it was answered
}

func (d *queueCall) String() string {
	return fmt.Sprintf("%s %q %s of lease %d, [%v, %v]: key %q of %d, at %d, %v, %v", d.kind, d.name, d.value, d.lease, d.begun, d.ended, d.key, d.since, d.rev, d.kv, d.err)
}

// queue makes a call of one of the services, without waiting for its answer.
func (a *sidecarApp) queue() {
	kind := a.some("lock", "lock", "lock", "campaign", "campaign", "campaign", "unlock", "unlock", "resign", "proclaim", "leader", "observe")
	d := &queueCall{kind: kind, name: a.queueName()}
	switch kind {
	case "observe":
		a.observe(d.name)
		return
	case "lock", "campaign":
		l := a.lease()
		if l == nil {
			return
		}
		d.lease = l.id
	case "unlock", "resign", "proclaim":
		held := a.holding(kind == "unlock")
		if held == nil {
			return
		}
		d.name, d.key, d.lease, d.since = held.name, held.key, held.lease, held.since
	}
	limit := time.Duration(200+a.rng.IntN(5000)) * time.Millisecond
	a.wait.Go(func() { a.queued(d, limit) })
}

func (a *sidecarApp) queueName() string {
	for {
		if name, ok := a.at.here(a.some("/p/", "/q/") + "queue"); ok {
			return name
		}
	}
}

// holding is a call that has got a lock, or has won an election; nil if there is none.
func (a *sidecarApp) holding(lock bool) *queueCall {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.queues) - 1; i >= 0; i-- {
		if d := a.queues[i]; d.answered && d.err == nil && (d.kind == "lock" && lock || d.kind == "campaign" && !lock) && !a.one(3) {
			return d
		}
	}
	return nil
}

// queued carries a call out.
func (a *sidecarApp) queued(d *queueCall, limit time.Duration) {
	a.mu.Lock()
	d.n, d.begun, d.floor = a.w.next(), a.w.now(), a.w.cluster.ledger.answered.Load()
	d.value = fmt.Sprintf("%d.%d", a.id, d.n)
	a.queues = append(a.queues, d)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	rev, key, since, kv, err := d.call(ctx, lockpb.NewLockClient(a.c.ActiveConnection()), lockpb.NewElectionClient(a.c.ActiveConnection()))
	a.mu.Lock()
	defer a.mu.Unlock()
	d.ended, d.answered, d.err, d.reached = a.w.now(), true, err, a.w.cluster.ledger.reached.Load()
	if err == nil {
		d.rev, d.kv = rev, kv
		if d.kind == "lock" || d.kind == "campaign" {
			d.key, d.since = key, since
		}
		raise(&a.w.cluster.ledger.answered, d.rev)
	}
}

func (d *queueCall) call(ctx context.Context, locks lockpb.LockClient, elections lockpb.ElectionClient) (rev int64, key string, since int64, kv *mvccpb.KeyValue, err error) {
	name, value := []byte(d.name), []byte(d.value)
	leader := &lockpb.LeaderKey{Name: name, Key: []byte(d.key), Rev: d.since, Lease: int64(d.lease)}
	var h interface{ GetHeader() *pb.ResponseHeader }
	switch d.kind {
	case "lock":
		r, e := locks.Lock(ctx, &lockpb.LockRequest{Name: name, Lease: int64(d.lease)})
		h, err, key = r, e, string(r.GetKey())
	case "unlock":
		r, e := locks.Unlock(ctx, &lockpb.UnlockRequest{Key: []byte(d.key)})
		h, err = r, e
	case "campaign":
		r, e := elections.Campaign(ctx, &lockpb.CampaignRequest{Name: name, Lease: int64(d.lease), Value: value})
		h, err, key, since = r, e, string(r.GetLeader().GetKey()), r.GetLeader().GetRev()
	case "proclaim":
		r, e := elections.Proclaim(ctx, &lockpb.ProclaimRequest{Leader: leader, Value: value})
		h, err = r, e
	case "resign":
		r, e := elections.Resign(ctx, &lockpb.ResignRequest{Leader: leader})
		h, err = r, e
	case "leader":
		r, e := elections.Leader(ctx, &lockpb.LeaderRequest{Name: name})
		h, err, kv = r, e, r.GetKv()
	}
	return h.GetHeader().GetRevision(), key, since, kv, err
}

// observed is an election that is observed.
type observed struct {
	name   string
	floor  int64
	cancel context.CancelFunc
	notes  []*lockpb.LeaderResponse
	err    error
	over   time.Duration
	whole  bool // it hadn't ended when all had come
}

func (o *observed) String() string {
	return fmt.Sprintf("%q as it is observed, %d notes, %v", o.name, len(o.notes), o.err)
}

func (a *sidecarApp) observe(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observed{name: name, cancel: cancel, floor: a.w.cluster.ledger.answered.Load()}
	remote, err := lockpb.NewElectionClient(a.c.ActiveConnection()).Observe(ctx, &lockpb.LeaderRequest{Name: []byte(name)})
	if err != nil {
		cancel()
		return
	}
	a.mu.Lock()
	a.observed = append(a.observed, o)
	a.mu.Unlock()
	a.watching.Go(func() {
		for {
			r, err := remote.Recv()
			a.mu.Lock()
			if err != nil {
				o.err, o.over = err, a.w.now()
				a.mu.Unlock()
				return
			}
			o.notes = append(o.notes, r)
			a.w.noted.Store(int64(a.w.now()))
			raise(&a.w.cluster.ledger.answered, r.Header.Revision)
			a.mu.Unlock()
		}
	})
}

// finishQueue finds that a lock can be had again: nobody renews the leases of others.
func (a *sidecarApp) finishQueue() {
	ctx, cancel := context.WithTimeout(context.Background(), sidecarHang)
	defer cancel()
	granted, err := a.c.Grant(ctx, 60)
	if err != nil {
		a.w.found("app %d: nothing breaks any more, and a grant: %v", a.id, err)
		return
	}
	for _, kind := range []string{"lock", "unlock"} {
		d := &queueCall{kind: kind, name: "queue", lease: granted.ID, key: fmt.Sprintf("queue/%x", granted.ID)}
		if prefix, ok := a.at.here("/q/"); ok {
			d.name, d.key = prefix+d.name, prefix+d.key
		}
		if a.queued(d, sidecarHang); d.err != nil {
			a.w.found("app %d: nothing breaks any more, and %v", a.id, d)
		}
	}
	if _, err := a.c.Revoke(ctx, granted.ID); err != nil {
		a.w.found("app %d: nothing breaks any more, and a revocation: %v", a.id, err)
	}
}

// isQueued tells whether a key is one of a lock or an election.
func isQueued(key string) bool { return strings.Contains(key, "queue/") }
