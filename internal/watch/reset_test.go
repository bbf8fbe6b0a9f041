package watch

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/store"
)

// A snapshot that brings one partition forward may take another one back. A
// watcher that begins before the changes have come again must not take what
// the store doesn't have yet for nothing, and one that has had them must not
// get them twice.
func TestResetTakesAPartitionBack(t *testing.T) {
	j := newJournal(1)
	h := NewHub(1, j.read, Options{})
	h.Reset([]int64{1}, 0)
	publish := func(revs ...int64) {
		for _, rev := range revs {
			c := put("k", rev, 0)
			j.add(0, c)
			h.Changes(0, rev, []store.Change{c})
		}
		h.Step()
	}
	watch := func() *Stream {
		s := h.NewStream("")
		s.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		return s
	}
	got := func(s *Stream) (revs []int64) {
		for {
			r, more, err := s.TryRecv()
			require.NoError(t, err)
			if !more {
				return revs
			}
			for _, e := range r.Events {
				revs = append(revs, e.Kv.ModRevision)
			}
		}
	}
	early := watch()
	publish(2, 3, 4)
	require.Equal(t, []int64{2, 3, 4}, got(early))

	j.changes[0] = j.changes[0][:1]
	h.Reset([]int64{2}, 0)
	late := watch()
	require.Equal(t, []int64{2}, got(late))
	publish(3, 4, 5)
	require.Equal(t, []int64{5}, got(early))
	require.Equal(t, []int64{3, 4, 5}, got(late))
}
