package lease

import (
	"slices"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
)

// revokeRetry is how long a revocation may take before it is proposed again;
// the first proposal may have been lost.
const revokeRetry = 3 * time.Second

// endingRetry is how long there may be no step of the end of a lease until the leader makes the next one, in
// the place of the server that a client has asked to revoke it. That one makes them more often; steps of both would
// meet, and other writes wait for two.
const endingRetry = 200 * time.Millisecond

// Expirer tracks the expiry of leases on the leader. It is safe for concurrent use.
type Expirer struct {
	mu      sync.Mutex
	term    uint64 // counts the times at which it began to lead, or stopped
	hears   bool   // of leases that come and go: it has begun to lead
	leads   bool   // all leases have their timers
	timers  map[int64]*timer
	ends    queue // ordered by the time at which they expire, or the next step of their end is to be made
	records queue // ordered by the time of the next checkpoint to propose
	revoked queue // those whose revocation is under way, ordered by the time to propose it again
}

// NewExpirer returns an expirer that is not leading.
func NewExpirer() *Expirer {
	e := &Expirer{}
	e.forget()
	return e
}

func (e *Expirer) forget() {
	e.term++
	e.hears, e.leads = false, false
	e.timers = map[int64]*timer{}
	e.ends = queue{slot: 0}
	e.records = queue{slot: 1}
	e.revoked = queue{slot: 2}
}

// timer is the leader's state of one lease.
type timer struct {
	id     int64
	number uint64
	ttl    time.Duration
	end    time.Time // when it expires
	// ending says that it is over, and that its end takes several steps. Between two of them it waits among the
	// others that have run out, each in its turn: so many large ones don't keep the others.
	ending bool
	// fresh says that it was granted while this server led, and not renewed since.
	fresh bool
	// issued counts the checkpoints handed out, and cleared those of them which a
	// later reset is known to have undone. While they differ, the table holds,
	// or may come to hold, a remaining time from before the last renewal.
	issued, cleared uint64

	wake [3]time.Time // per queue
	pos  [3]int       // per queue; -1: not in it
}

// promoteStep is how many leases get their timers at a time: what is applied meanwhile waits for them.
const promoteStep = 1000

// Promote begins to lead: the leases of the table get their remaining time of
// the table, and extend in addition, so that clients can find the new leader.
// It must be called when the server has applied all entries that earlier
// leaders can have logged, or a checkpoint of theirs could still be applied.
//
// It hears of the leases that come and go from now on. To give the others their timers, any goroutine runs what is returned: a
// million take a second. Until then none is renewed.
func (e *Expirer) Promote(now time.Time, table *Table, extend time.Duration) (set func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget()
	e.hears = true
	term := e.term
	return func() {
		for ids := range slices.Chunk(table.IDs(), promoteStep) {
			if !e.take(term, ids, now, table, extend) {
				return
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leads = e.leads || e.term == term
	}
}

// take gives leases their timers. Each is looked up under the expirer's lock: one that is granted, revoked or ended
// concurrently is then either in the table as it is, or its Granted, Revoked or Ending comes afterwards; and if Granted has
// come already, it has its timer. It returns false if the expirer doesn't lead any more, or again.
func (e *Expirer) take(term uint64, ids []int64, now time.Time, table *Table, extend time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != term {
		return false
	}
	for _, id := range ids {
		l, is := table.Get(id)
		if !is || e.timers[id] != nil {
			continue
		}
		t := e.add(l)
		if l.Remaining == Ending {
			e.end(t, now, 0)
			continue
		}
		if l.Remaining > 0 {
			t.issued = 1
		}
		e.schedule(t, now, now.Add(extend+seconds(l.left())))
	}
	return true
}

// Demote stops leading. Until the next Promote nothing is due.
func (e *Expirer) Demote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget()
}

// Granted adds a lease that was just granted. On a server that doesn't lead
// it does nothing, like the methods below.
func (e *Expirer) Granted(l Lease, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hears {
		return
	}
	t := e.add(l)
	t.fresh = true
	e.schedule(t, now, now.Add(seconds(l.left())))
}

// Ending says that a lease is over and has to be revoked again, as some of its keys are
// still there.
func (e *Expirer) Ending(id int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.timers[id]; t != nil {
		e.end(t, now, endingRetry)
	}
}

// Again says, behind Ending, that the revocation was the leader's own: nobody else makes the next step.
func (e *Expirer) Again(id int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.timers[id]; t != nil && t.ending && e.ends.has(t) {
		e.ends.put(t, now)
	}
}

func (e *Expirer) end(t *timer, now time.Time, after time.Duration) {
	t.end, t.ending = now, true
	e.revoked.drop(t)
	e.records.drop(t)
	e.ends.put(t, now.Add(after))
}

// revoke has a revocation under way, to be proposed again.
func (e *Expirer) revoke(t *timer, again time.Time) {
	e.ends.drop(t)
	e.records.drop(t)
	e.revoked.put(t, again)
}

// Revoked removes a lease.
func (e *Expirer) Revoked(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(id)
}

func (e *Expirer) remove(id int64) {
	if t := e.timers[id]; t != nil {
		e.ends.drop(t)
		e.records.drop(t)
		e.revoked.drop(t)
		delete(e.timers, id)
	}
}

// over reports whether the lease's time is over, though it may not be revoked yet.
func (e *Expirer) over(t *timer, now time.Time) bool {
	return t.ending || e.revoked.has(t) || !now.Before(t.end)
}

// Renewal is the result of a request to renew a lease.
type Renewal struct {
	TTL int64 // in seconds
	// Reset, if there is one, is to be logged and applied before the renewal is acknowledged; then Cleared is
	// called. Resets and other checkpoints must be proposed in the order in which the expirer returned them.
	Reset []Checkpoint

	timer  *timer
	issued uint64
}

// Renew gives a lease its full time again.
func (e *Expirer) Renew(id int64, now time.Time) (Renewal, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leads {
		return Renewal{}, fault.NotLeader
	}
	t := e.timers[id]
	// A lease whose time is over counts as revoked, though its revocation
	// is not in the log yet: a renewal acknowledged now would be followed by its
	// revocation.
	if t == nil || e.over(t, now) {
		return Renewal{}, fault.LeaseNotFound
	}
	// The renewal may come early after a Promote that extended: it never
	// shortens.
	end := now.Add(t.ttl)
	if end.Before(t.end) {
		end = t.end
	}
	t.fresh = false
	e.schedule(t, now, end)
	r := Renewal{TTL: int64(t.ttl / time.Second), timer: t, issued: t.issued}
	if t.issued > t.cleared {
		r.Reset = []Checkpoint{t.checkpoint(0)}
	}
	return r, nil
}

// Shorten gives a lease that has just been granted less than its full time. What it returns must be logged, in its order
// among other checkpoints. It never prolongs a lease, and none loses what a renewal has
// told: one that comes late leaves a lease as it is which has been renewed, or may have been, under an earlier leader.
func (e *Expirer) Shorten(id, remaining int64, now time.Time) ([]Checkpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leads {
		return nil, fault.NotLeader
	}
	t := e.timers[id]
	if t == nil || e.over(t, now) {
		return nil, fault.LeaseNotFound
	}
	end := now.Add(seconds(remaining))
	if !t.fresh || !end.Before(t.end) {
		return nil, nil
	}
	e.schedule(t, now, end)
	t.issued++
	return []Checkpoint{t.checkpoint(remaining)}, nil
}

// Cleared says that the reset that a renewal demanded has been applied.
func (e *Expirer) Cleared(r Renewal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.timer.cleared = max(r.timer.cleared, r.issued)
}

// Over is a lease whose time is over.
type Over struct {
	ID     int64
	Number uint64
}

// Due returns expired leases, whose revocation is to be proposed now, as long as not more than limit
// are under way: other writes wait for those before them. One that still exists after revokeRetry is
// returned again.
func (e *Expirer) Due(now time.Time, limit int) []Over {
	e.mu.Lock()
	defer e.mu.Unlock()
	var due []Over
	next := func() *timer {
		if t := e.revoked.due(now); t != nil || e.revoked.Len() >= limit {
			return t
		}
		return e.ends.due(now)
	}
	for t := next(); t != nil && len(due) < limit; t = next() {
		due = append(due, Over{t.id, t.number})
		e.revoke(t, now.Add(revokeRetry))
	}
	return due
}

// Remaining is the remaining time of a lease, negative when it has expired
// and is not yet revoked. False if there is no such lease or the server
// doesn't lead.
func (e *Expirer) Remaining(id int64, now time.Time) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.timers[id]; t != nil {
		return t.end.Sub(now), true
	}
	return 0, false
}

func (e *Expirer) add(l Lease) *timer {
	t := &timer{id: l.ID, number: l.Number, ttl: seconds(l.TTL), pos: [3]int{-1, -1, -1}}
	if same := e.timers[l.ID]; same != nil { // Promote has found it in the table already
		t.issued = same.issued
		e.remove(l.ID)
	}
	e.timers[l.ID] = t
	return t
}

func (e *Expirer) schedule(t *timer, now, end time.Time) {
	t.end = end
	e.ends.put(t, end)
	e.records.put(t, t.firstRecord(now))
}

// seconds guards against a TTL that a duration can't hold: MaxTTL is 285 years,
// a duration 292. Only a damaged table could have more.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, MaxTTL)) * time.Second
}
