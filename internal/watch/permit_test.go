package watch

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// A watcher whose user loses the permission gets what was published before, and nothing of
// what is published afterwards, whether or not the hub had delivered it.
func TestPermissionsOfWatchers(t *testing.T) {
	errDenied := errors.New("denied")
	j := newJournal(1)
	h := NewHub(1, j.read, Options{})
	feed := h.Reset([]int64{1}, 0)
	write := func(rev int64) {
		c := put("k", rev, 0)
		j.add(0, c)
		feed.Changes(0, rev, []store.Change{c})
	}
	lost := map[uint64]bool{}
	permit := func(user uint64, key, _ []byte) error {
		require.Equal(t, "k", string(key))
		if lost[user] {
			return errDenied
		}
		return nil
	}
	feed.Permit(1, permit, nil)
	streams := map[uint64]*Stream{}
	for user := uint64(1); user <= 2; user++ {
		s := h.NewStream("")
		s.As(user)
		s.Create(&pb.WatchCreateRequest{Key: []byte("k")})
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok && r.Created)
		streams[user] = s
	}
	write(2)
	h.Step()
	write(3) // published, and not delivered yet
	lost[1] = true
	feed.Permit(1, permit, nil)
	write(4)
	h.Step()

	var revisions []int64
	for {
		r, ok, err := streams[1].TryRecv()
		require.NoError(t, err)
		require.True(t, ok)
		if r.Canceled {
			require.ErrorIs(t, r.Cause, errDenied)
			break
		}
		for _, ev := range r.Events {
			revisions = append(revisions, ev.Kv.ModRevision)
		}
	}
	require.Subset(t, []int64{2, 3}, revisions)
	_, ok, err := streams[1].TryRecv()
	require.NoError(t, err)
	require.False(t, ok)

	n := 0
	for {
		r, ok, err := streams[2].TryRecv()
		require.NoError(t, err)
		if !ok {
			break
		}
		n += len(r.Events)
	}
	require.Equal(t, 3, n, "others get everything")

	streams[1].Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	r, ok, err := streams[1].TryRecv()
	require.NoError(t, err)
	require.True(t, ok && r.Created && r.Canceled)
	require.ErrorIs(t, r.Cause, errDenied)
}

// The stores go back, with a snapshot, to where a user isn't known yet. Its watch goes on, and another one is opened: only a fence ends
// what was known, since the state may have been wrong.
func TestPermissionsDontGoBack(t *testing.T) {
	errUnknown := errors.New("unknown")
	h := NewHub(1, newJournal(1).read, Options{})
	knows := func(f *Feed, revision uint64) {
		f.Permit(revision, func(user uint64, _, _ []byte) error {
			if user > revision {
				return errUnknown
			}
			return nil
		}, nil)
	}
	knows(h.Reset([]int64{1}, 0), 7)
	opens := func(user uint64) (*Stream, Response) {
		s := h.NewStream("")
		s.As(user)
		s.Create(&pb.WatchCreateRequest{Key: []byte("k")})
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok && r.Created)
		return s, r
	}
	s, r := opens(7)
	require.False(t, r.Canceled)

	feed := h.Install(func(_, _ []byte) placement.Set { return placement.Of(0) }, false, []int64{1}, 0)
	for revision := uint64(5); revision <= 8; revision++ { // of the snapshot, and of what comes again
		knows(feed, revision)
		_, ended, err := s.TryRecv()
		require.NoError(t, err)
		require.False(t, ended, "revision %d", revision)
		_, r := opens(7)
		require.False(t, r.Canceled, "revision %d", revision)
	}

	h.Fence(errUnknown)
	h.Fence(nil)
	knows(feed, 5)
	_, r = opens(7)
	require.ErrorIs(t, r.Cause, errUnknown)
}

// Whether a request is malformed is none of a client's business that has no permission, as in
// etcd; and the ids that watchers get don't tell of refused ones.
func TestPermissionsComeFirst(t *testing.T) {
	errDenied := errors.New("denied")
	h := NewHub(1, newJournal(1).read, Options{})
	feed := h.Reset([]int64{1}, 0)
	feed.Permit(1, func(user uint64, _, _ []byte) error {
		if user == 1 {
			return errDenied
		}
		return nil
	}, nil)
	s := h.NewStream("")
	empty := &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("j")}
	for i, want := range []struct {
		user uint64
		req  *pb.WatchCreateRequest
		why  error
		id   int64
	}{
		{1, &pb.WatchCreateRequest{Key: []byte("k")}, errDenied, noID}, {1, empty, errDenied, noID}, {2, empty, ErrEmptyRange, noID},
		{2, &pb.WatchCreateRequest{Key: []byte("k")}, nil, 0},
	} {
		s.As(want.user)
		s.Create(want.req)
		r, ok, err := s.TryRecv()
		require.NoError(t, err)
		require.True(t, ok && r.Created, i)
		require.ErrorIs(t, r.Cause, want.why, i)
		require.Equal(t, want.id, r.WatchId, i)
	}
}
