package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

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
