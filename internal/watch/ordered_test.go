package watch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// Events of watchers in several partitions are received in one order.
func TestThrough(t *testing.T) {
	h := NewHub(2, func(int, []byte, []byte, int64, int64, store.Bounds, bool) ([]store.Change, int64, error) {
		t.Fatal("nothing is so far behind")
		return nil, 0, nil
	}, Options{Parts: func(key, _ []byte) placement.Set { return placement.Of(int(key[0] - 'a')) }})
	f := h.Reset([]int64{1, 1}, 0)
	rang := 0
	s := h.NewNotifiedStream("me", func() { rang++ })
	defer s.Close()
	require.EqualValues(t, math.MaxInt64, s.Through(), "without watchers there is nothing to come")

	for id, key := range []string{"a", "b"} {
		rev, err := s.Open(&pb.WatchCreateRequest{Key: []byte(key), WatchId: int64(id + 1)}, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, rev)
	}
	_, err := s.Open(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 1}, 0)
	require.ErrorIs(t, err, ErrDuplicateID)
	_, ok, _ := s.TryRecv()
	require.False(t, ok, "the answers were given already")

	put := func(p int, key string, rev int64) {
		f.Changes(p, rev, []store.Change{put(key, rev, 0)})
		h.Step()
	}
	put(1, "b", 3)
	require.EqualValues(t, 1, s.Through(), "2 may still come, in partition 0")
	s.Await(3)
	put(0, "a", 2)
	require.EqualValues(t, 2, s.Through())
	rang = 0
	f.Advance(0, 3)
	h.Step()
	require.Positive(t, rang)
	var revs []int64
	through, at := s.Collect(func(r Response) { revs = append(revs, r.Events[0].Kv.ModRevision) })
	require.EqualValues(t, 3, through)
	require.EqualValues(t, 3, at)
	require.ElementsMatch(t, []int64{2, 3}, revs)

	// A watcher that begins in the past holds the others up until it has caught
	// up.
	_, err = s.Open(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5, StartRevision: 2}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Through())
	through, at = s.Collect(func(Response) { t.Fatal("it has to be read for") })
	require.EqualValues(t, 1, through)
	require.EqualValues(t, 3, at)
	r, ok, err := s.Behind()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 5, r.WatchId)
	require.EqualValues(t, 3, s.Through())
}
