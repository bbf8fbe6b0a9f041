package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// held is a log that keeps the last checkpoints, and the revocations, until a test has them applied.
type held struct {
	list  []Checkpoint
	done  func(error)
	overs []Over
}

func (h *held) Revoke(_ uint64, over Over, _ func(error)) { h.overs = append(h.overs, over) }

func (h *held) Checkpoint(_ uint64, list []Checkpoint, done func(error)) { h.list, h.done = list, done }

func (h *held) apply(t *testing.T, table *Table, want ...Checkpoint) {
	require.Equal(t, want, h.list)
	for _, c := range h.list {
		applyCheckpoint(table, c)
	}
	h.list = nil
	h.done(nil)
}

// As package apply does.
func applyCheckpoint(table *Table, c Checkpoint) (applied bool) {
	l, is := table.Get(c.ID)
	if is = is && l.Is(c.Number); is {
		table.Checkpoint(c.ID, c.Remaining)
	}
	return is
}

func applyRevocation(table *Table, over Over) (applied bool) {
	l, is := table.Get(over.ID)
	return is && l.Is(over.Number) && table.Revoke(over.ID) == nil
}

// What is decided of a lease may get into the log behind the end of that, and another's grant with the same ID. It says nothing of the
// other one.
func TestDecisionsForAnEarlierLease(t *testing.T) {
	var (
		now   time.Time
		log   held
		table = NewTable()
		l     = NewLeader(func() time.Time { return now })
	)
	revoked := func() {
		if table.Revoke(1) == nil {
			l.Expirer.Revoked(1)
		}
	}
	grant := func(seconds float64, number uint64) {
		now = at(seconds)
		revoked()
		granted := Lease{ID: 1, TTL: 60, Number: number}
		require.NoError(t, table.Grant(granted))
		l.Expirer.Granted(granted, now)
	}
	left := func() time.Duration {
		next := NewExpirer()
		next.Promote(now, table, 0)()
		left, _ := next.Remaining(1, now)
		return left
	}
	l.Lead(1, table, 0)()

	grant(0, 1)
	now = at(50)
	l.Expire(&log, 1, 1)
	grant(50.1, 2)
	log.apply(t, table, Checkpoint{1, 10, 1})
	require.Equal(t, time.Minute, left())

	l.Shorten(&log, 1, 5, func(error) {})
	grant(50.2, 3)
	log.apply(t, table, Checkpoint{1, 5, 2})
	require.Equal(t, time.Minute, left(), "another one was to have less")

	now = at(100)
	l.Expire(&log, 1, 1)
	log.apply(t, table, Checkpoint{1, 11, 3})
	renewed := false
	l.Renew(&log, 1, func(_ int64, err error) { renewed = err == nil })
	grant(100.1, 4)
	table.Checkpoint(1, 5)
	log.apply(t, table, Checkpoint{1, 0, 3})
	require.True(t, renewed, "the lease was, though it is gone")
	require.Equal(t, 5*time.Second, left(), "the reset was an earlier one's")

	now = at(161)
	l.Expire(&log, 1, 1)
	now = now.Add(revokeRetry)
	l.Expire(&log, 1, 1) // the log has stood still
	require.Equal(t, []Over{{1, 4}, {1, 4}}, log.overs)
	require.True(t, applyRevocation(table, log.overs[0]))
	l.Expirer.Revoked(1)
	grant(164.1, 5)
	require.False(t, applyRevocation(table, log.overs[1]))
}

// That a reset has been applied may be said late, of a lease that was revoked since, or by a leader that leads again. It undoes nothing of what
// was handed out behind it.
func TestAResetThatIsToldLate(t *testing.T) {
	for _, again := range []string{"granted again", "leading again"} {
		t.Run(again, func(t *testing.T) {
			var (
				now   = at(0)
				log   held
				table = NewTable()
				l     = NewLeader(func() time.Time { return now })
			)
			grant := func() {
				granted := Lease{ID: 1, TTL: 60}
				require.NoError(t, table.Grant(granted))
				l.Expirer.Granted(granted, now)
			}
			renewed := false
			renew := func() { l.Renew(&log, 1, func(_ int64, err error) { renewed = err == nil }) }
			l.Lead(1, table, 0)()
			grant()
			now = at(50)
			l.Expire(&log, 1, 1)
			log.apply(t, table, Checkpoint{ID: 1, Remaining: 10})
			renew()
			late := log.done // of the reset, which is applied here

			if again == "granted again" {
				require.NoError(t, table.Revoke(1))
				l.Expirer.Revoked(1)
				grant()
				now = at(100)
				l.Expire(&log, 1, 1)
				log.apply(t, table, Checkpoint{ID: 1, Remaining: 10})
			} else {
				table.Checkpoint(1, 0)
				now = at(100)
				l.Expire(&log, 1, 1)
				l.Follow()
				table.Checkpoint(1, 10)
				l.Lead(2, table, 0)()
			}
			late(nil)
			renewed = false
			renew()
			require.False(t, renewed, "the log says that less remains")
			log.apply(t, table, Checkpoint{ID: 1})
			require.True(t, renewed)
		})
	}
}
