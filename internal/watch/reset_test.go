package watch

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// A snapshot that brings one partition forward may take another one back. A
// watcher that begins before the changes are published again must not skip
// them, and one that has had them must not get them twice.
func TestResetTakesAPartitionBack(t *testing.T) {
	j := newJournal(1)
	h := NewHub(1, j.read, Options{})
	f := h.Reset([]int64{1}, 0)
	publish := func(revs ...int64) {
		for _, rev := range revs {
			c := put("k", rev, 0)
			j.add(0, c)
			f.Changes(0, rev, []store.Change{c})
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
	f = h.Reset([]int64{2}, 0)
	late := watch()
	require.Equal(t, []int64{2}, got(late))
	publish(3, 4, 5)
	require.Equal(t, []int64{5}, got(early))
	require.Equal(t, []int64{3, 4, 5}, got(late))
}

// A snapshot takes partition 0 back from revision 12 to 8 and brings partition
// 1 forward. The replaced replica, which had closed partition 0 through 12,
// must not make the watchers skip 10 and 12, which are published again.
func TestAReplacedReplicaIsIgnored(t *testing.T) {
	j := newJournal(2)
	h := NewHub(2, j.read, Options{})
	old := h.Reset([]int64{1, 1}, 0)
	s := h.NewStream("")
	s.Create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("z")})
	publish := func(f *Feed, revs ...int64) {
		for _, rev := range revs {
			c := put("k", rev, 0)
			j.add(0, c)
			f.Changes(0, rev, []store.Change{c})
		}
	}
	var got []int64
	receive := func() {
		h.Step()
		for {
			r, more, err := s.TryRecv()
			require.NoError(t, err)
			if !more {
				return
			}
			for _, e := range r.Events {
				got = append(got, e.Kv.ModRevision)
			}
		}
	}
	publish(old, 5, 10, 12)
	old.Advance(0, 12)
	old.Advance(1, 3)
	h.Step()

	j.changes[0] = j.changes[0][:1]
	both := func(_, _ []byte) placement.Set { return placement.Of(0) | placement.Of(1) }
	present := h.Install(both, false, []int64{8, 20}, 0)
	old.Advance(0, 12)
	old.Changes(0, 12, []store.Change{put("k", 12, 0)})
	old.Moved(30, nil, false)
	present.Advance(1, 20)
	receive()
	publish(present, 10, 12)
	present.Advance(0, 20)
	receive()
	require.Equal(t, []int64{5, 10, 12}, got)
}
