package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// However long an apply holds a store, the clock goes on, with the heartbeats of all groups, and so do the links.
func TestNoWindowIsWaitedFor(t *testing.T) {
	s := leading(t, 3)
	list := membership.OfIDs(1, 2, 3)
	list.Level = version.Newest
	for _, r := range s.replicas {
		r.cfg.CheckTicks = 1000
		r.cfg.Machine.LoadMembership(list, r.cfg.Machine.Configurations())
	}
	leader, follower := s.replicas[0], s.replicas[1]
	s.stores[0][1].Lock()
	s.stores[1][1].Lock()
	gone := make(chan struct{})
	go func() {
		leader.Tick()
		follower.windows.told(follower, follower.generation(), windowOf{1, store.WindowSum{End: store.Window}}.appendTo(nil))
		follower.Tick()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("it waits for an apply")
	}
	s.stores[0][1].Unlock()
	s.stores[1][1].Unlock()
	<-gone
	require.Len(t, follower.windows.awaited, 1, "it is compared later")
}

func FuzzDecodeWindow(f *testing.F) {
	f.Add(windowOf{3, store.WindowSum{End: 1 << 40, Diff: 7}}.appendTo(nil))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, ok := decodeWindow(b)
		if !ok {
			return
		}
		again, none, ok := decodeWindow(c.appendTo(nil))
		require.True(t, ok)
		require.Empty(t, none)
		require.Equal(t, c, again)
		require.Less(t, len(rest), len(b))
	})
}
