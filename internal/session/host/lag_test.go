package host

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/placement"
)

// An apply holds a store's lock for as long as it takes. The replica's clock, which
// announces closed revisions, goes on meanwhile, and ends the waits that it can end.
func TestAnnouncementsDoNotWaitForAnApply(t *testing.T) {
	w := newWorld(t, 1, Config{RequestTimeout: time.Second})
	s := w.servers[0]
	w.elect(s)
	ended := make(chan error, 2)
	for _, rev := range []int64{100, 101} {
		s.sessions.lags.wait(s, time.Second, &lag{
			state: &s.state, parts: placement.Of(0), revision: rev, done: func(err error) { ended <- err },
		})
	}
	s.state.Stores[0].Lock()
	defer s.state.Stores[0].Unlock()
	s.state.Replica.AllClosed(100)
	ticked := make(chan struct{})
	go func() {
		s.state.Replica.Tick()
		close(ticked)
	}()
	select {
	case <-ticked:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the tick waits for the apply")
	}
	require.NoError(t, <-ended)
	require.Empty(t, ended, "the other revision is not closed")
	require.Len(t, s.sessions.lags.list, 1)
}

// A wait ends once: when its state is replaced, before or after it began, or after its
// limit.
func TestWaitsEndOnce(t *testing.T) {
	w := newWorld(t, 1, Config{})
	s := w.servers[0]
	before := s.state
	var ended []error
	wait := func(st *State) {
		s.sessions.lags.wait(s, time.Second, &lag{
			state: st, parts: placement.Of(0), revision: 100, done: func(err error) { ended = append(ended, err) },
		})
	}
	wait(&before)
	require.Equal(t, []error{errReplaced}, ended)
	wait(&s.state)
	s.sessions.Replaced()
	require.Len(t, ended, 1, "the present state is the one that it waits for")
	s.sessions.lags.replaced(&before)
	require.Equal(t, []error{errReplaced, errReplaced}, ended)
	wait(&s.state)
	w.wait(time.Second)
	require.Equal(t, []error{errReplaced, errReplaced, errNotCaughtUp}, ended)
	require.Empty(t, s.sessions.lags.list)
	require.Empty(t, s.timers)
}
