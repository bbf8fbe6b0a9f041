package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// A key that moves while a watcher reads history, from the partition that is asked
// last to the one that was asked first, is found all the same, and once.
func TestHistoryOfAKeyThatMoves(t *testing.T) {
	for _, from := range []int{0, 1} {
		home := from
		history := func(p int, _, _ []byte, _, to int64, _ store.Bounds, _ bool) ([]store.Change, int64, error) {
			var found []store.Change
			if p == home {
				kv := kvwire.Make([]byte("k"), nil, kvwire.Fields{CreateRevision: 5, ModRevision: 5, Version: 1})
				found = []store.Change{{Revision: store.Revision{Main: 5}, Kv: kv}}
			}
			home = 1 - from
			return found, to, nil
		}
		both := func(_, _ []byte) placement.Set { return placement.Of(0) | placement.Of(1) }
		h := NewHub(2, history, Options{Parts: both, Moving: true})
		f := h.Reset([]int64{9, 9}, 0)
		f.Advance(0, 9)
		f.Advance(1, 9)
		s := h.NewStream("")
		s.Create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("z"), StartRevision: 2})
		_, ok, err := s.TryRecv()
		require.True(t, ok)
		require.NoError(t, err)
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok, "from partition %d", from)
		require.Len(t, r.Events, 1)
		_, ok, _ = s.TryRecv()
		require.False(t, ok)
	}
}

// What a watcher lacks is read anew if partitions go while its history is read.
func TestHistoryWhilePartitionsGo(t *testing.T) {
	change := put("k", 5, 0)
	of := func(n int) func(_, _ []byte) placement.Set {
		return func(_, _ []byte) placement.Set { return placement.All(n) }
	}
	var h *Hub
	left := 2
	history := func(p int, _, _ []byte, _, to int64, _ store.Bounds, _ bool) ([]store.Change, int64, error) {
		switch {
		case left == 2: // they go when the first has been read
			left = 1
			h.Install(of(1), false, []int64{9}, 0)
			return []store.Change{change}, to, nil
		case p >= left:
			return nil, 0, fault.Moved
		}
		return []store.Change{change}, to, nil
	}
	h = NewHub(2, history, Options{Parts: of(2)})
	f := h.Reset([]int64{9, 9}, 0)
	f.Advance(0, 9)
	f.Advance(1, 9)
	s := h.NewStream("")
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("z"), StartRevision: 2})
	for _, events := range []int{0, 1} {
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok)
		require.Len(t, r.Events, events)
	}
	_, ok, err := s.TryRecv()
	require.NoError(t, err)
	require.False(t, ok)
}
