package host

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
)

// A stream that its client has given up, before it was open, doesn't end the next one, whatever the order in which their
// renewals of the lease are answered.
func TestOpenedOutOfOrder(t *testing.T) {
	w := newWorld(t, 1, Config{})
	ss := w.servers[0].sessions
	number := uint64(0)
	open := func(asked time.Duration) *Session {
		l := Lease{ID: 7, TTL: LeaseTTL(60), Renewed: w.now.Add(asked)}
		s, _ := ss.Open(l, User{}, &stoapb.OpenSession{Session: 7, Next: 1, Stream: number}, nil, &client{w: w, id: 7})
		s.Start()
		w.quiesce()
		return s
	}
	second := open(time.Second)
	first := open(0)
	require.ErrorIs(t, first.Err(), fault.SessionTaken)
	require.NoError(t, second.Err())
	third := open(time.Second)
	require.ErrorIs(t, second.Err(), fault.SessionTaken)
	require.NoError(t, third.Err())
	third.Close()
	require.Empty(t, ss.byID)
	fourth := open(0) // there is none that was asked for later
	require.NoError(t, fourth.Err())

	number = 2 // the client counts its streams: when they came says nothing
	fifth := open(0)
	require.ErrorIs(t, fourth.Err(), fault.SessionTaken)
	number = 1
	require.ErrorIs(t, open(time.Second).Err(), fault.SessionTaken)
	require.NoError(t, fifth.Err())
	number = 0 // another client's
	sixth := open(time.Second)
	require.ErrorIs(t, fifth.Err(), fault.SessionTaken)
	require.NoError(t, sixth.Err())
	sixth.Close()
}
