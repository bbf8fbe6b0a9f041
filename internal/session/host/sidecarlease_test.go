package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sidecarLease is what is known of a lease.
type sidecarLease struct {
	id      clientv3.LeaseID
	ttl     time.Duration
	revoked time.Duration // since when it may have been; 0: never
	renewed []*renewing   // the first is its grant
}

// renewing is a request for a renewal, and its answer.
type renewing struct {
	lease        *sidecarLease
	begun, ended time.Duration
	ttl          time.Duration // that was told; 0: there is no such lease
	err          error
}

func (r *renewing) String() string {
	return fmt.Sprintf("renewal of %d, [%v, %v]: %v, %v", r.lease.id, r.begun, r.ended, r.ttl, r.err)
}

// over notes an answer.
func (w *sidecarWorld) over(r *renewing, ttl int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.ended, r.ttl, r.err = w.now(), time.Duration(ttl)*time.Second, err
	if r.err == nil {
		w.counts.Renewed++
	}
}

// grant has a lease granted.
func (a *sidecarApp) grant() {
	l := &sidecarLease{ttl: time.Duration(1+a.rng.IntN(3)) * time.Second}
	r := &renewing{lease: l, begun: a.w.now()}
	a.wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), sidecarHang)
		defer cancel()
		granted, err := a.c.Grant(ctx, int64(l.ttl/time.Second))
		if err != nil {
			a.leaseError("a grant", err)
			return
		}
		a.w.over(r, granted.TTL, nil)
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		l.id, l.renewed = granted.ID, []*renewing{r}
		if a.w.ends[l.id] {
			l.revoked = r.begun
		}
		a.w.leases = append(a.w.leases, l)
	})
}

// leaseError: it is one of those that are documented, or EOF where a stream breaks before its first request.
func (a *sidecarApp) leaseError(what string, err error) {
	if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "Unavailable") && !strings.Contains(err.Error(), "etcdserver: ") {
		a.w.found("app %d: %s: %v: no such error is documented", a.id, what, err)
	}
}

// lease is one that has been granted, nil if there is none.
func (a *sidecarApp) lease() *sidecarLease {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if n := len(a.w.leases); n > 0 {
		return a.w.leases[max(0, n-1-a.rng.IntN(4))]
	}
	return nil
}

// renew asks for a renewing, which is noted.
func (w *sidecarWorld) renew(l *sidecarLease) *renewing {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &renewing{lease: l, begun: w.now()}
	l.renewed = append(l.renewed, r)
	return r
}

// keepAlive renews a lease once, or over a stream, which is the app's.
func (a *sidecarApp) keepAlive() {
	l := a.lease()
	if l == nil {
		return
	}
	if a.one(2) {
		a.wait.Go(func() { a.renewOnce(l) })
		return
	}
	if a.renewals == nil || a.renewals.over() {
		a.renewals = a.openRenewals()
	}
	if k := a.renewals; k != nil {
		for range 1 + a.rng.IntN(3) {
			k.ask(l)
		}
	}
}

func (a *sidecarApp) renewOnce(l *sidecarLease) *renewing {
	r := a.w.renew(l)
	ctx, cancel := context.WithTimeout(context.Background(), sidecarHang)
	defer cancel()
	ttl, err := a.renewOver(ctx, l)
	if err != nil {
		a.leaseError("a renewal", err)
	}
	a.w.over(r, ttl, err)
	return r
}

// renewOver renews a lease over a stream of its own. KeepAliveOnce of etcd's client tries without a pause while it has no connection, and
// no time passes meanwhile.
func (a *sidecarApp) renewOver(ctx context.Context, l *sidecarLease) (ttl int64, err error) {
	remote, err := pb.NewLeaseClient(a.c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := remote.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return 0, err
	}
	answer, err := remote.Recv()
	return answer.GetTTL(), err
}

// revoke ends a lease.
func (a *sidecarApp) revoke() {
	l := a.lease()
	if l == nil {
		return
	}
	a.w.revoked(l.id)
	a.wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), sidecarHang)
		defer cancel()
		if _, err := a.c.Revoke(ctx, l.id); err != nil {
			a.leaseError("a revocation", err)
		}
	})
}

// revoked notes that a lease may be over from now on.
func (w *sidecarWorld) revoked(id clientv3.LeaseID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[id] = true
	for _, l := range w.leases {
		if l.id == id && l.revoked == 0 {
			l.revoked = w.now()
		}
	}
}

// renewals is a stream of keep-alives as it is on the wire.
type renewals struct {
	a      *sidecarApp
	remote pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
	asked  chan *renewing
	ended  chan struct{}
}

func (a *sidecarApp) openRenewals() *renewals {
	ctx, cancel := context.WithCancel(context.Background())
	remote, err := pb.NewLeaseClient(a.c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		cancel()
		return nil
	}
	k := &renewals{a: a, remote: remote, cancel: cancel, asked: make(chan *renewing, 1000), ended: make(chan struct{})}
	a.keeping = append(a.keeping, k)
	a.watching.Go(k.receive)
	return k
}

func (k *renewals) over() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

func (k *renewals) ask(l *sidecarLease) {
	k.asked <- k.a.w.renew(l)
	_ = k.remote.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}) // receive has the error
}

// receive takes the answers, which come in the order of the requests.
func (k *renewals) receive() {
	defer close(k.ended)
	for {
		answer, err := k.remote.Recv()
		if err != nil {
			k.a.leaseError("a stream of keep-alives", fmt.Errorf("Unavailable or cancelled: %w", err))
			return
		}
		select {
		case r := <-k.asked:
			if int64(r.lease.id) != answer.ID {
				k.a.w.found("app %d: %v is answered for %d", k.a.id, r, answer.ID)
			}
			k.a.w.over(r, answer.TTL, nil)
		default:
			k.a.w.found("app %d: an answer to no keep-alive: %v", k.a.id, answer)
		}
	}
}

// checkLease: it lives as long as was told.
func (w *sidecarWorld) checkLease(l *sidecarLease) {
	w.counts.Leases++
	for _, r := range l.renewed {
		if r.ended != 0 && r.err == nil && r.ttl == 0 {
			w.checkDead(l, r.ended, r)
		}
		for _, o := range l.renewed {
			if o.ended != 0 && o.err == nil && o.ttl == 0 && o.ended < r.begun && r.ended != 0 && r.err == nil && r.ttl > 0 {
				w.found("lease %d: %v is behind %v", l.id, r, o)
			}
		}
		if r.ttl > l.ttl {
			w.found("lease %d: %v has longer than %v", l.id, r, l.ttl)
		}
	}
}

// checkDead: a lease that is over at a time has not been told to live for longer.
func (w *sidecarWorld) checkDead(l *sidecarLease, at time.Duration, by any) {
	if l.revoked != 0 && l.revoked <= at {
		return
	}
	for _, r := range l.renewed {
		if r.ended != 0 && r.err == nil && r.ttl > 0 && r.begun+r.ttl > at {
			w.found("lease %d is over at %v, by %v, and there was %v", l.id, at, by, r)
		}
	}
}

// ended tells whether a key's lease has deleted it, which has to be over then.
func (w *sidecarWorld) ended(id, rev int64) bool {
	for _, l := range w.leases {
		if int64(l.id) == id {
			w.checkDead(l, w.cluster.ledger.when[rev].Sub(w.begun), rev)
			w.counts.Expired++
			return true
		}
	}
	return false
}

// expire finds that leases that nothing renews are over.
func (a *sidecarApp) expire() {
	calm := time.Duration(a.w.calmed.Load())
	for _, l := range a.w.leases {
		last := calm
		for _, r := range l.renewed {
			last = max(last, r.begun, r.ended)
		}
		if a.w.now() < last+l.ttl+8*time.Second {
			continue
		}
		if r := a.renewOnce(l); r.err == nil && r.ttl > 0 {
			a.w.found("app %d: nothing has renewed it, and %v", a.id, r)
		}
	}
}
