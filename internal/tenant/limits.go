package tenant

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

// Limits are those of one server. Any goroutine may use them. A nil one limits nothing.
type Limits struct {
	clock func() int64 // in nanoseconds

	rates   atomic.Pointer[rates]   // nil: no quota has one
	watches atomic.Pointer[Watches] // likewise

	// mu guards the buckets and what follows. Nothing is called under it but the clock.
	mu      sync.Mutex
	tallies map[name]*tally
}

// New returns limits without quotas. The clock is in nanoseconds and doesn't go back.
func New(clock func() int64) *Limits { return &Limits{clock: clock} }

// name is whose quota it is.
type name struct{ role, prefix string }

func nameOf(q *auth.Quota) name { return name{q.Role, q.Prefix} }

// tally is what a quota has admitted and refused. It outlasts changes of the quota.
type tally struct {
	bucket                bucket
	overRate, overWatches refusal
}

// rates are the quotas with a rate.
type rates struct {
	reach   *auth.Reach
	tallies []*tally // by quota
}

// Change puts the quotas of a state of users and roles in force, and returns the limits of
// watches: nil if there are none. Buckets keep their level.
func (l *Limits) Change(now *auth.State) *Watches {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.tallies
	l.tallies = map[name]*tally{}
	var byQuota []*tally
	if now.Rates() != nil || now.Watches() != nil {
		byQuota = l.tally(now.Quotas(), before)
	}
	l.rates.Store(nil)
	if reach := now.Rates(); reach != nil {
		l.rates.Store(&rates{reach, byQuota})
	}
	var watches *Watches
	if reach := now.Watches(); reach != nil {
		watches = &Watches{state: now, reach: reach, tallies: byQuota, open: make([]atomic.Int64, len(byQuota))}
	}
	l.watches.Store(watches)
	return watches
}

// tally brings the tallies up to date with the quotas.
func (l *Limits) tally(quotas []auth.Quota, before map[name]*tally) []*tally {
	list := make([]*tally, len(quotas))
	for i := range quotas {
		q := &quotas[i]
		if q.Rate == 0 && q.Watchers == 0 {
			continue
		}
		t := before[nameOf(q)]
		if t == nil {
			t = new(tally)
		}
		if q.Rate > 0 {
			t.bucket.limit(q.Rate, l.clock())
		} else {
			t.bucket = bucket{}
		}
		t.overRate.detail.Store(fault.QuotaExceeded.With(fmt.Sprintf("stoa: quota of %v exceeded: %d requests per second on each server", q, q.Rate)))
		t.overWatches.detail.Store(fault.QuotaExceeded.With(fmt.Sprintf("stoa: quota of %v exceeded: %d watches on each server", q, q.Watchers)))
		l.tallies[nameOf(q)], list[i] = t, t
	}
	return list
}

// Request is what a request counts by: the message, or the key of a plain put or of a read of
// one key, or nothing but its user.
type Request struct {
	Message  proto.Message
	Put, Get []byte
}

// of returns the quotas of a request.
func (r *rates) of(u *auth.User, req Request) []int32 {
	switch {
	case req.Message != nil:
		return r.reach.Of(u, req.Message)
	case req.Put != nil:
		return r.reach.OfPut(u, req.Put)
	case req.Get != nil:
		return r.reach.OfRead(u, req.Get, nil)
	}
	return r.reach.OfUser(u)
}

// Admit refuses a request of a user if a quota's rate doesn't allow it.
func (l *Limits) Admit(u *auth.User, req Request) error {
	if r := l.present(); r != nil {
		return l.take(r, r.of(u, req))
	}
	return nil
}

func (l *Limits) present() *rates {
	if l == nil {
		return nil
	}
	return l.rates.Load()
}

// Rated reports whether any quota has a rate.
func (l *Limits) Rated() bool { return l.present() != nil }

// take takes a request out of all buckets, or out of none.
func (l *Limits) take(r *rates, quotas []int32) error {
	if len(quotas) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for _, q := range quotas {
		t := r.tallies[q]
		if t.bucket.rate == 0 {
			return nil // the quota has just been changed
		}
		t.bucket.fill(now)
		if !t.bucket.has() {
			return t.overRate.refuse()
		}
	}
	for _, q := range quotas {
		r.tallies[q].bucket.take()
	}
	return nil
}

// Owe counts a request that isn't refused, whatever the rate allows: later ones are refused
// instead.
func (l *Limits) Owe(u *auth.User, req Request) {
	r := l.present()
	if r == nil {
		return
	}
	quotas := r.of(u, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range quotas {
		l.owe(r.tallies[q])
	}
}

func (l *Limits) owe(t *tally) {
	if t.bucket.rate > 0 {
		t.bucket.fill(l.clock())
		t.bucket.take()
	}
}

// Reserve counts a request of a user that should rather wait than be refused: by that, leases
// would end. It returns for how long it has to wait until the rate allows it; beyond a second
// it is refused.
func (l *Limits) Reserve(u *auth.User) (wait time.Duration, err error) {
	r := l.present()
	if r == nil {
		return 0, nil
	}
	quotas := r.reach.OfUser(u)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for _, q := range quotas {
		if b := &r.tallies[q].bucket; b.rate > 0 {
			if b.fill(now); b.level < -b.full() {
				return 0, r.tallies[q].overRate.refuse()
			}
		}
	}
	for _, q := range quotas {
		l.owe(r.tallies[q])
		wait = max(wait, r.tallies[q].bucket.debt())
	}
	return wait, nil
}

// Usage is what a quota has admitted and refused on this server.
type Usage struct {
	Watchers int64 // open ones
	Requests int64 // of the last second, about
	// Since the quota was set.
	RefusedWatches, RefusedRequests int64
}

// Usage returns that of the quota for the same role or prefix.
func (l *Limits) Usage(q *auth.Quota) (u Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tallies[nameOf(q)]
	if t == nil {
		return u
	}
	if t.bucket.rate > 0 {
		t.bucket.fill(l.clock())
		u.Requests = t.bucket.requests()
	}
	u.RefusedWatches, u.RefusedRequests = t.overWatches.times.Load(), t.overRate.times.Load()
	if w := l.watches.Load(); w != nil {
		u.Watchers = w.count(q)
	}
	return u
}
