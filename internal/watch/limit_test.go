package watch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// users limits the watches of each user, whose credential is the number of its quota.
type users struct {
	open  map[int32]int
	limit int
}

var errFull = errors.New("full")

func (u *users) Enter(user uint64, _, _ []byte, must bool) ([]int32, error) {
	q := int32(user)
	if !must && u.open[q] >= u.limit {
		return nil, errFull
	}
	u.open[q]++
	return []int32{q}, nil
}

func (u *users) Leave(quotas []int32) {
	for _, q := range quotas {
		u.open[q]--
	}
}

func limitOf(n int) *users { return &users{map[int32]int{}, n} }

// A watch that is too many is refused as one without permission, and others go on. However a
// watch ends, it isn't counted any more.
func TestLimitOfWatchers(t *testing.T) {
	j := newJournal(1)
	h := NewHub(1, j.read, Options{})
	feed := h.Reset([]int64{1}, 0)
	limiter := limitOf(2)
	feed.Permit(1, nil, limiter)
	stream := func(user uint64) *Stream {
		s := h.NewStream("")
		s.As(user)
		return s
	}
	create := func(s *Stream, from int64) Response {
		s.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: from})
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok && r.Created)
		return r
	}
	one, two := stream(1), stream(2)
	require.NoError(t, create(one, 0).Cause)
	require.NoError(t, create(one, 0).Cause)
	r := create(one, 0)
	require.True(t, r.Canceled)
	require.ErrorIs(t, r.Cause, errFull)
	require.Equal(t, "k", string(r.Key))
	require.ErrorIs(t, h.Room(1, []byte("k"), nil), errFull)
	require.NoError(t, h.Room(2, []byte("k"), nil))
	require.NoError(t, create(two, 0).Cause, "another user's")
	require.Equal(t, map[int32]int{1: 2, 2: 1}, limiter.open)

	c := put("k", 2, 0)
	j.add(0, c)
	feed.Changes(0, 2, []store.Change{c})
	h.Step()
	for _, s := range []*Stream{one, one, two} {
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok && len(r.Events) == 1, "the stream goes on")
	}

	one.Cancel(0)
	require.Equal(t, 1, limiter.open[1])
	_, _, _ = one.TryRecv()
	require.NoError(t, create(one, 0).Cause)

	// A lower limit ends no watch; those that are open are counted for it.
	limiter = limitOf(1)
	feed.Permit(1, nil, limiter)
	require.Equal(t, map[int32]int{1: 2, 2: 1}, limiter.open)
	require.ErrorIs(t, create(one, 0).Cause, errFull)

	// Permission that is lost, a compaction, and the end of the stream.
	limiter = limitOf(3)
	feed.Permit(1, func(user uint64, _, _ []byte) error {
		if user == 2 {
			return fmt.Errorf("denied")
		}
		return nil
	}, limiter)
	require.Equal(t, map[int32]int{1: 2}, limiter.open)
	h.Compacted(2)
	j.err = fault.Compacted
	require.NoError(t, create(one, 1).Cause)
	require.Equal(t, 3, limiter.open[1])
	r, ok, err := one.TryRecv()
	require.NoError(t, err)
	require.True(t, ok && r.CompactRevision > 0, "%v", r)
	require.Equal(t, 2, limiter.open[1])
	one.Close()
	require.Equal(t, 0, limiter.open[1])

	// Those of a session.
	s := h.NewNotifiedStream("", func() {})
	s.As(5)
	for id := range 3 {
		_, err := s.Open(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: int64(id + 1)}, 0)
		require.NoError(t, err)
	}
	_, err = s.Open(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 4}, 0)
	require.ErrorIs(t, err, errFull)
	s.Close()
	require.Equal(t, 0, limiter.open[5])

	feed.Permit(1, nil, nil)
	require.NoError(t, h.Room(1, []byte("k"), nil))
	two = stream(1)
	for range 10 {
		require.NoError(t, create(two, 0).Cause)
	}
}
