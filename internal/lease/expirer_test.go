package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
)

var start = time.Unix(1_000_000, 0)

// at is a point in time, in seconds after the test's start.
func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func leading(t *testing.T, leases ...Lease) (*Expirer, *Table) {
	t.Helper()
	table, e := NewTable(), NewExpirer()
	table.Load(leases...)
	e.Promote(at(0), table, 0)()
	return e, table
}

// due are the IDs of the leases that are due.
func due(e *Expirer, now time.Time, limit int) (ids []int64) {
	for _, o := range e.Due(now, limit) {
		ids = append(ids, o.ID)
	}
	return ids
}

func TestLeaseExpiresWithoutRenewal(t *testing.T) {
	e, _ := leading(t)
	e.Granted(Lease{ID: 1, TTL: 10}, at(0))
	e.Granted(Lease{ID: 2, TTL: 10}, at(0))
	require.Empty(t, due(e, at(9.999), 10))

	r, err := e.Renew(2, at(9))
	require.NoError(t, err)
	require.Equal(t, int64(10), r.TTL)
	require.Equal(t, []int64{1}, due(e, at(10), 10))
	left, ok := e.Remaining(2, at(10))
	require.True(t, ok)
	require.Equal(t, 9*time.Second, left)

	// The revocation is proposed again if the lease remains.
	require.Empty(t, due(e, at(12.9), 10))
	require.Equal(t, []int64{1}, due(e, at(13), 10))
	e.Revoked(1)
	require.Empty(t, due(e, at(16.1), 10))
	_, ok = e.Remaining(1, at(17))
	require.False(t, ok)

	_, err = e.Renew(1, at(17))
	require.ErrorIs(t, err, fault.LeaseNotFound)
	_, err = e.Renew(2, at(19))
	require.ErrorIs(t, err, fault.LeaseNotFound, "its time is over, though nothing has been proposed yet")
}

func TestDueIsBoundedAndInOrder(t *testing.T) {
	e, _ := leading(t)
	for id := int64(1); id <= 5; id++ {
		e.Granted(Lease{ID: id, TTL: 20 - 2*id}, at(0))
	}
	require.Equal(t, []int64{5, 4}, due(e, at(100), 2))
	require.Empty(t, due(e, at(100), 2), "two are under way")
	e.Revoked(5)
	require.Equal(t, []int64{3}, due(e, at(100), 2))
	require.Equal(t, []int64{3, 4}, due(e, at(103), 2), "first those that may have been lost")
	e.Revoked(3)
	e.Revoked(4)
	require.Equal(t, []int64{2, 1}, due(e, at(103), 2))
}

func TestOnlyALeaderExpires(t *testing.T) {
	e := NewExpirer()
	e.Granted(Lease{ID: 1, TTL: 1}, at(0))
	_, err := e.Renew(1, at(0))
	require.ErrorIs(t, err, fault.NotLeader)
	require.Empty(t, due(e, at(100), 10))

	e, _ = leading(t, Lease{ID: 1, TTL: 1})
	e.Demote()
	require.Empty(t, due(e, at(100), 10))
	require.Empty(t, e.Checkpoints(at(100), 10))
}

func TestANewLeaderContinuesFromTheCheckpoint(t *testing.T) {
	table, e := NewTable(), NewExpirer()
	table.Load(Lease{ID: 1, TTL: 100, Remaining: 30}, Lease{ID: 2, TTL: 100})
	e.Promote(at(0), table, 2*time.Second)()
	require.Empty(t, due(e, at(31.9), 10))
	require.Equal(t, []int64{1}, due(e, at(32), 10))
	e.Revoked(1)
	require.Equal(t, []int64{2}, due(e, at(102), 10))
}

// Leases come, go and end before all have their timers; none is renewed before.
func TestPromotedInSteps(t *testing.T) {
	table, e := NewTable(), NewExpirer()
	for id := int64(1); id <= 5; id++ {
		table.Load(Lease{ID: id, TTL: 10})
	}
	revoke := func(id int64) {
		require.NoError(t, table.Revoke(id))
		e.Revoked(id)
	}
	grant := func(id, ttl int64) {
		l := Lease{ID: id, TTL: ttl}
		require.NoError(t, table.Grant(l))
		e.Granted(l, at(1))
	}
	set := e.Promote(at(0), table, 0)
	_, err := e.Renew(1, at(1))
	require.ErrorIs(t, err, fault.NotLeader, "it isn't known whether it is gone")
	_, err = e.Shorten(1, 1, at(1))
	require.ErrorIs(t, err, fault.NotLeader)
	revoke(2)
	table.End(3)
	e.Ending(3, at(1))
	revoke(4)
	grant(4, 20)
	grant(6, 11)
	_, err = e.Renew(6, at(1))
	require.ErrorIs(t, err, fault.NotLeader)
	set()
	_, err = e.Renew(1, at(5))
	require.NoError(t, err)
	_, err = e.Renew(2, at(5))
	require.ErrorIs(t, err, fault.LeaseNotFound)
	require.Equal(t, []int64{3}, due(e, at(1), 10))
	revoke(3)
	require.Equal(t, []int64{5, 6, 1, 4}, due(e, at(21), 10))

	set = e.Promote(at(30), table, 0)
	e.Demote()
	set()
	require.Empty(t, e.timers)
	next := e.Promote(at(31), table, 0)
	set()
	require.Empty(t, e.timers)
	_, err = e.Renew(1, at(31))
	require.ErrorIs(t, err, fault.NotLeader)
	next()
	_, err = e.Renew(1, at(31))
	require.NoError(t, err)
}

// The log is applied while the leases get their timers.
func TestPromotedBesideApply(t *testing.T) {
	const loaded = 20 * promoteStep
	table, e := NewTable(), NewExpirer()
	for id := int64(1); id <= loaded; id++ {
		table.Load(Lease{ID: id, TTL: 60})
	}
	set := e.Promote(at(0), table, 0)
	var both sync.WaitGroup
	both.Go(set)
	both.Go(func() {
		for i := range int64(3 * promoteStep) {
			gone, come := i*6+1, loaded+i
			if i%3 == 0 {
				come = gone // again
			}
			_ = table.Revoke(gone)
			e.Revoked(gone)
			if l := (Lease{ID: come, TTL: 120}); table.Grant(l) == nil {
				e.Granted(l, at(1))
			}
		}
	})
	both.Wait()
	require.Len(t, e.timers, table.Len())
	table.Each(func(l Lease) {
		left, ok := e.Remaining(l.ID, at(1))
		require.True(t, ok)
		require.Equal(t, l.TTL == 120, left == 120*time.Second, "%+v: %v", l, left)
	})
}

func TestPromoteExtensionIsNotLostByAnEarlyRenewal(t *testing.T) {
	table, e := NewTable(), NewExpirer()
	table.Load(Lease{ID: 1, TTL: 2})
	e.Promote(at(0), table, time.Second)()
	_, err := e.Renew(1, at(0.1))
	require.NoError(t, err)
	require.Empty(t, due(e, at(2.9), 1))
}

// A lease that is granted just as the server begins to lead is announced twice:
// by the table and by the grant.
func TestGrantAndPromoteMayCross(t *testing.T) {
	e, _ := leading(t, Lease{ID: 1, TTL: 10})
	e.Granted(Lease{ID: 1, TTL: 10}, at(1))
	require.Empty(t, due(e, at(10.5), 10))
	require.Equal(t, []int64{1}, due(e, at(11), 10))
	e.Revoked(1)
	require.Empty(t, due(e, at(100), 10))
}

func TestCheckpointsBeginAtHalf(t *testing.T) {
	e, _ := leading(t)
	e.Granted(Lease{ID: 1, TTL: 80}, at(0))
	require.Empty(t, e.Checkpoints(at(39), 10))
	require.Equal(t, []Checkpoint{{ID: 1, Remaining: 40}}, e.Checkpoints(at(40), 10))
	require.Empty(t, e.Checkpoints(at(49), 10))
	require.Equal(t, []Checkpoint{{ID: 1, Remaining: 30}}, e.Checkpoints(at(50.5), 10), "29.5 s are rounded up")
	require.Equal(t, []Checkpoint{{ID: 1, Remaining: 1}}, e.Checkpoints(at(79.9), 10))
	require.Empty(t, e.Checkpoints(at(81), 10), "what is over is revoked, not recorded")

	// However short a lease is, one checkpoint a second must do.
	e.Granted(Lease{ID: 2, TTL: 4}, at(100))
	require.Len(t, e.Checkpoints(at(102.1), 10), 1)
	require.Empty(t, e.Checkpoints(at(103), 10))
	require.Len(t, e.Checkpoints(at(103.2), 10), 1)
	e.Granted(Lease{ID: 3, TTL: 1}, at(200))
	require.Empty(t, e.Checkpoints(at(200.9), 10), "rounded up it says all")
}

func TestARenewedLeaseNeedsNoCheckpoint(t *testing.T) {
	e, _ := leading(t)
	e.Granted(Lease{ID: 1, TTL: 90}, at(0))
	for s := 0.0; s < 1000; s += 30 {
		r, err := e.Renew(1, at(s))
		require.NoError(t, err)
		require.Empty(t, r.Reset)
		require.Empty(t, e.Checkpoints(at(s), 10))
	}
}

// Invariant 3: from the moment at which a checkpoint is given out, and until a
// reset behind it has been applied, every renewal demands a reset.
func TestRenewalUndoesTheCheckpoint(t *testing.T) {
	e, _ := leading(t)
	e.Granted(Lease{ID: 1, TTL: 60}, at(0))
	require.Len(t, e.Checkpoints(at(40), 10), 1)
	first, err := e.Renew(1, at(41))
	require.NoError(t, err)
	require.Equal(t, []Checkpoint{{ID: 1}}, first.Reset, "the checkpoint may still be on its way, it counts all the same")
	again, err := e.Renew(1, at(42))
	require.NoError(t, err)
	require.NotEmpty(t, again.Reset, "the first reset may get lost")

	require.Len(t, e.Checkpoints(at(80), 10), 1) // half of 60 s after 42
	e.Cleared(first)
	e.Cleared(again)
	r, err := e.Renew(1, at(81))
	require.NoError(t, err)
	require.NotEmpty(t, r.Reset, "those resets were proposed before the last checkpoint")
	e.Cleared(r)
	r, err = e.Renew(1, at(82))
	require.NoError(t, err)
	require.Empty(t, r.Reset)

	// A new leader finds the checkpoint in the table.
	e, _ = leading(t, Lease{ID: 1, TTL: 60, Remaining: 20})
	r, err = e.Renew(1, at(1))
	require.NoError(t, err)
	require.NotEmpty(t, r.Reset)
	left, _ := e.Remaining(1, at(1))
	require.Equal(t, time.Minute, left)
}

// Invariant 2, through changes of leader at any moment, with a log that
// applies late and loses what was not committed: no lease is due before its
// TTL has passed since the grant or the last acknowledged renewal.
func TestNoLeaseEndsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := rapid.Int64Range(2, 120).Draw(t, "ttl")
		table := NewTable()
		table.Load(Lease{ID: 1, TTL: ttl})
		e := NewExpirer()
		e.Promote(at(0), table, 0)()
		now, renewed := start, start // renewed: when the last acknowledged renewal was asked for
		var log []func(leads bool)   // proposed, not yet applied

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, int(ttl)*300).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				asked := now
				r, err := e.Renew(1, now)
				switch {
				case err != nil:
				case r.Reset == nil:
					renewed = asked
				default:
					log = append(log, func(leads bool) {
						table.Checkpoint(1, 0)
						if leads {
							e.Cleared(r)
							renewed = asked
						}
					})
				}
			case 2:
				for _, c := range e.Checkpoints(now, 10) {
					log = append(log, func(bool) { table.Checkpoint(c.ID, c.Remaining) })
				}
			case 3:
				n := rapid.IntRange(0, len(log)).Draw(t, "applied")
				for _, apply := range log[:n] {
					apply(true)
				}
				log = log[n:]
			case 4:
				// The leader is lost with the tail of its log.
				for _, apply := range log[:rapid.IntRange(0, len(log)).Draw(t, "committed")] {
					apply(false)
				}
				log = nil
				e.Demote()
				now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "gap")) * time.Millisecond)
				e.Promote(now, table, 0)()
			}
			left, ok := e.Remaining(1, now)
			require.True(t, ok)
			if lives := now.Add(left).Sub(renewed); lives < time.Duration(ttl)*time.Second {
				t.Fatalf("a lease of %d s is to end %v after it was renewed", ttl, lives)
			}
			if len(e.Due(now, 1)) > 0 {
				return
			}
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	table, e := NewTable(), NewExpirer()
	for id := int64(1); id <= 100_000; id++ {
		table.Load(Lease{ID: id, TTL: 60})
	}
	e.Promote(start, table, 0)()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := e.Renew(int64(i%100_000)+1, at(float64(i)/1e6)); err != nil {
			b.Fatal(err)
		}
	}
}

// A lease that ends in several steps can't be renewed, by whichever leader, and is due
// again as soon as the leader has made a step, or when another server has made none for a while.
func TestAnEndingLeaseIsDueAgain(t *testing.T) {
	e, table := leading(t, Lease{ID: 1, TTL: 100})
	table.End(1)
	e.Ending(1, at(5))
	require.False(t, table.Has(1))
	table.Checkpoint(1, 50)
	require.False(t, table.Has(1), "a checkpoint that crosses it changes nothing")
	_, err := e.Renew(1, at(5))
	require.ErrorIs(t, err, fault.LeaseNotFound)
	require.Empty(t, due(e, at(5.1), 10), "who has made the step makes the next one")
	e.Ending(1, at(5.1))
	require.Empty(t, due(e, at(5.25), 10))
	require.Equal(t, []int64{1}, due(e, at(5.3), 10))
	e.Ending(1, at(6))
	e.Again(1, at(6))
	require.Equal(t, []int64{1}, due(e, at(6), 10))
	require.Empty(t, e.Checkpoints(at(60), 10))

	next := NewExpirer()
	next.Promote(at(10), table, 10*time.Second)()
	_, err = next.Renew(1, at(10))
	require.ErrorIs(t, err, fault.LeaseNotFound)
	require.Equal(t, []int64{1}, due(next, at(10), 10))
	require.NoError(t, table.Revoke(1))
	next.Revoked(1)
	next.Again(1, at(11))
	require.Empty(t, due(next, at(60), 10))
}

// A lease that runs out is revoked in its turn, though as many as may be under way end in several steps.
func TestEndingLeasesDoNotKeepOthers(t *testing.T) {
	e, _ := leading(t)
	for id := int64(1); id <= 3; id++ {
		e.Granted(Lease{ID: id, TTL: 10}, at(0))
	}
	e.Granted(Lease{ID: 4, TTL: 11}, at(0))
	step := func(now float64, ids ...int64) {
		for _, id := range ids {
			e.Ending(id, at(now))
			e.Again(id, at(now))
		}
	}
	require.Equal(t, []int64{1, 2}, due(e, at(10), 2))
	step(10.1, 1, 2)
	require.Equal(t, []int64{3, 1}, due(e, at(10.1), 2))
	step(11.1, 3, 1)
	require.Equal(t, []int64{2, 4}, due(e, at(11.1), 2))
	step(11.2, 2)
	e.Revoked(4)
	require.Equal(t, []int64{1, 3}, due(e, at(11.2), 2))
	require.Equal(t, []int64{1, 3}, due(e, at(14.2), 2), "first those that may have been lost")
}

// A lease that was granted with less than its full time ends then, also under another leader,
// unless it is renewed.
func TestShorten(t *testing.T) {
	e, table := leading(t)
	for id := int64(1); id <= 2; id++ {
		l := Lease{ID: id, TTL: 60, Number: 9}
		require.NoError(t, table.Grant(l))
		e.Granted(l, at(0))
		log, err := e.Shorten(id, 5, at(1))
		require.NoError(t, err)
		require.Equal(t, []Checkpoint{{ID: id, Remaining: 5, Number: 9}}, log)
		table.Checkpoint(id, 5)
	}
	log, err := e.Shorten(1, 30, at(1))
	require.NoError(t, err)
	require.Empty(t, log, "it isn't prolonged")
	r, err := e.Renew(2, at(2))
	require.NoError(t, err)
	require.NotEmpty(t, r.Reset, "the log says that less remains")
	require.Equal(t, []int64{1}, due(e, at(6), 10))
	_, err = e.Shorten(1, 1, at(6))
	require.ErrorIs(t, err, fault.LeaseNotFound)
	_, err = e.Shorten(9, 1, at(6))
	require.ErrorIs(t, err, fault.LeaseNotFound)

	other := NewExpirer()
	_, err = other.Shorten(1, 1, at(6))
	require.ErrorIs(t, err, fault.NotLeader)
	other.Promote(at(3), table, 0)()
	require.Equal(t, []int64{1, 2}, due(other, at(8), 10))
}

// A request to give a lease less than its full time comes behind a renewal of it, as when the client has sent the grant again.
// Who was told the full time of the renewal has it, also if that was under an earlier leader.
func TestShortenLate(t *testing.T) {
	e, table := leading(t)
	for id := int64(1); id <= 2; id++ {
		l := Lease{ID: id, TTL: 60}
		require.NoError(t, table.Grant(l))
		e.Granted(l, at(0))
	}
	r, err := e.Renew(1, at(1))
	require.NoError(t, err)
	require.EqualValues(t, 60, r.TTL)
	require.Empty(t, r.Reset)
	log, err := e.Shorten(1, 5, at(2))
	require.NoError(t, err)
	require.Empty(t, log)
	require.Equal(t, []int64{2}, due(e, at(60), 10), "which was not renewed")
	require.Equal(t, []int64{1}, due(e, at(61), 10))

	e.Promote(at(3), table, 0)()
	log, err = e.Shorten(2, 5, at(4))
	require.NoError(t, err)
	require.Empty(t, log)
	require.Empty(t, due(e, at(62), 10))
}

// All that is decided of a lease has its number, whichever leader does so.
func TestDecisionsHaveNumbers(t *testing.T) {
	e, table := leading(t, Lease{ID: 1, TTL: 8, Number: 5})
	l := Lease{ID: 2, TTL: 8, Number: 6}
	require.NoError(t, table.Grant(l))
	e.Granted(l, at(0))
	require.Equal(t, []Checkpoint{{ID: 1, Remaining: 4, Number: 5}, {ID: 2, Remaining: 4, Number: 6}}, e.Checkpoints(at(4), 2))
	r, err := e.Renew(1, at(5))
	require.NoError(t, err)
	require.Equal(t, []Checkpoint{{ID: 1, Number: 5}}, r.Reset)
	require.Equal(t, []Over{{ID: 2, Number: 6}}, e.Due(at(8), 2))
	require.Equal(t, []Over{{ID: 2, Number: 6}}, e.Due(at(11), 2), "it may have been lost")
	e.Ending(2, at(12))
	e.Again(2, at(12))
	require.Equal(t, []Over{{ID: 2, Number: 6}}, e.Due(at(12), 2))
}

// What a leader that begins has handed out of a lease whose grant it hears of later is undone by a renewal.
func TestACheckpointBeforeTheGrantIsHeard(t *testing.T) {
	e, _ := leading(t, Lease{ID: 1, TTL: 8, Number: 5})
	require.Len(t, e.Checkpoints(at(4), 1), 1)
	e.Granted(Lease{ID: 1, TTL: 8, Number: 5}, at(5))
	r, err := e.Renew(1, at(6))
	require.NoError(t, err)
	require.NotEmpty(t, r.Reset)
}
