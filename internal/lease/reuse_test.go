package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reuse is a leader and leases with one ID, one behind the other. What it has the log do is applied late, and told of later
// still, in any order; what is not applied when the leader changes is lost.
type reuse struct {
	now      time.Time
	table    *Table
	leader   *Leader
	epoch    uint64
	entries  []func()
	told     []func()
	lease    int       // which one it is
	promised time.Time // it must not end before
	whole    bool      // a request for less takes nothing from it
	early    bool      // one has
}

const reuseTTL = 60

func newReuse() *reuse {
	r := &reuse{now: start, table: NewTable(), epoch: 1}
	r.leader = NewLeader(func() time.Time { return r.now })
	r.leader.Lead(1, r.table, 0)()
	r.grant()
	return r
}

func (r *reuse) Revoke(epoch uint64, over Over, done func(error)) {
	r.entries = append(r.entries, func() {
		if epoch != r.epoch {
			return
		}
		if applyRevocation(r.table, over) {
			r.leader.Expirer.Revoked(1)
			r.early = r.early || r.now.Before(r.promised)
		}
		r.told = append(r.told, func() { done(nil) })
	})
}

func (r *reuse) Checkpoint(epoch uint64, list []Checkpoint, done func(error)) {
	r.entries = append(r.entries, func() {
		if epoch != r.epoch {
			return
		}
		for _, c := range list {
			applyCheckpoint(r.table, c)
		}
		r.told = append(r.told, func() { done(nil) })
	})
}

func (r *reuse) grant() {
	if r.table.Revoke(1) == nil {
		r.leader.Expirer.Revoked(1)
	}
	r.lease++
	l := Lease{ID: 1, TTL: reuseTTL, Number: uint64(r.lease)}
	_ = r.table.Grant(l)
	r.leader.Expirer.Granted(l, r.now)
	r.promised, r.whole = r.now.Add(seconds(reuseTTL)), false
}

func (r *reuse) renew() {
	asked, lease := r.now, r.lease
	r.leader.Renew(r, 1, func(_ int64, err error) {
		if end := asked.Add(seconds(reuseTTL)); err == nil && r.lease == lease && end.After(r.promised) {
			r.promised, r.whole = end, true
		}
	})
}

func (r *reuse) shorten(remaining int64) {
	if end := r.now.Add(seconds(remaining)); !r.whole && end.Before(r.promised) {
		r.promised = end
	}
	r.leader.Shorten(r, 1, remaining, func(error) {})
}

func (r *reuse) apply(n int) {
	for range min(n, len(r.entries)) {
		next := r.entries[0]
		r.entries = r.entries[1:]
		next()
	}
}

func (r *reuse) tell(i int) {
	if i < len(r.told) {
		next := r.told[i]
		r.told = append(r.told[:i:i], r.told[i+1:]...)
		next()
	}
}

func (r *reuse) lead() {
	r.entries = nil
	r.epoch++
	r.whole = true
	r.leader.Follow()
	r.leader.Lead(r.epoch, r.table, 0)()
}

func (r *reuse) settle() {
	for range 3 {
		r.apply(len(r.entries))
		for len(r.told) > 0 {
			r.tell(0)
		}
		r.leader.Expire(r, 1, 1)
	}
}

// Invariants 2 and 3, of leases of which each has the ID of the one before.
func TestNoLeaseWithTheIDOfAnotherEndsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReuse()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 15_000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				r.renew()
			case 2:
				r.shorten(rapid.Int64Range(1, reuseTTL).Draw(t, "remaining"))
			case 3:
				r.leader.Expire(r, 1, 1)
			case 4:
				r.entries = append(r.entries, r.grant)
			case 5, 6, 7:
				r.apply(1)
			case 8:
				r.tell(rapid.IntRange(0, 2).Draw(t, "which"))
			case 9:
				r.apply(rapid.IntRange(0, len(r.entries)).Draw(t, "committed"))
				r.lead()
			}
		}
		r.settle()
		next := NewExpirer()
		next.Promote(r.now, r.table, 0)()
		require.False(t, r.early)
		if left, is := next.Remaining(1, r.now); is {
			require.False(t, r.now.Add(left).Before(r.promised), "it has %v left, and was promised %v", left, r.promised.Sub(r.now))
		}
	})
}
