package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// held is a log that keeps the last checkpoints until a test has them applied.
type held struct {
	list []Checkpoint
	done func(error)
}

func (h *held) Revoke(uint64, Over, func(error)) {}

func (h *held) Checkpoint(_ uint64, list []Checkpoint, done func(error)) { h.list, h.done = list, done }

func (h *held) apply(t *testing.T, table *Table, want ...Checkpoint) {
	require.Equal(t, want, h.list)
	for _, c := range h.list {
		table.Checkpoint(c.ID, c.Remaining)
	}
	h.list = nil
	h.done(nil)
}

// What is handed out of a lease may get into the log behind the end of that, and another's grant with the same ID. Of what it then says of the
// other one that must not end early, under no leader, nor may a renewal be acknowledged that the next leader doesn't know of.
func TestRecordsOfAnEarlierLease(t *testing.T) {
	var (
		now   time.Time
		log   held
		table = NewTable()
		l     = NewLeader(func() time.Time { return now })
	)
	grant := func(seconds float64) {
		now = at(seconds)
		if table.Revoke(1) == nil {
			l.Expirer.Revoked(1)
		}
		granted, err := table.Grant(1, 60, 0)
		require.NoError(t, err)
		l.Expirer.Granted(granted, now)
	}
	left := func() time.Duration {
		next := NewExpirer()
		next.Promote(now, table, 0)()
		left, _ := next.Remaining(1, now)
		return left
	}
	renewed := false
	renew := func() { l.Renew(&log, 1, func(_ int64, err error) { renewed = err == nil }) }
	l.Lead(1, table, 0)()

	grant(0)
	now = at(50)
	l.Expire(&log, 1, 1)
	grant(50.1)
	log.apply(t, table, Checkpoint{1, 10})
	now = at(50.2)
	l.Expire(&log, 1, 1)
	log.apply(t, table, Checkpoint{1, 0})
	require.Equal(t, time.Minute, left())

	now = at(100)
	l.Expire(&log, 1, 1)
	grant(100.1)
	log.apply(t, table, Checkpoint{1, 11})
	renew()
	require.False(t, renewed, "the log says that less remains")
	log.apply(t, table, Checkpoint{1, 0})
	require.True(t, renewed)
	require.Equal(t, time.Minute, left())

	grant(100.1) // nothing is taken from one that has been renewed
	l.Shorten(&log, 1, 5, func(error) {})
	grant(100.2)
	log.apply(t, table, Checkpoint{1, 5})
	now = at(100.3)
	l.Expire(&log, 1, 1)
	log.apply(t, table, Checkpoint{1, 0})
	require.Equal(t, time.Minute, left(), "another one was to have less")

	renewed = false
	now = at(150)
	l.Expire(&log, 1, 1)
	log.apply(t, table, Checkpoint{1, 11})
	renew()
	grant(150.1)
	log.apply(t, table, Checkpoint{1, 0})
	now = at(190)
	l.Expire(&log, 1, 1)
	log.apply(t, table, Checkpoint{1, 21})
	renewed = false
	renew()
	require.False(t, renewed, "the reset was an earlier one's")
	log.apply(t, table, Checkpoint{1, 0})
	require.True(t, renewed)
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
				granted, err := table.Grant(1, 60, 0)
				require.NoError(t, err)
				l.Expirer.Granted(granted, now)
			}
			renewed := false
			renew := func() { l.Renew(&log, 1, func(_ int64, err error) { renewed = err == nil }) }
			l.Lead(1, table, 0)()
			grant()
			now = at(50)
			l.Expire(&log, 1, 1)
			log.apply(t, table, Checkpoint{1, 10})
			renew()
			late := log.done // of the reset, which is applied here

			if again == "granted again" {
				require.NoError(t, table.Revoke(1))
				l.Expirer.Revoked(1)
				grant()
				now = at(100)
				l.Expire(&log, 1, 1)
				log.apply(t, table, Checkpoint{1, 10})
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
			log.apply(t, table, Checkpoint{1, 0})
			require.True(t, renewed)
		})
	}
}
