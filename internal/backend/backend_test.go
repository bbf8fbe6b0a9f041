package backend_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

var identity = backend.Identity{Cluster: 0xc, Server: 0x5, Partitions: 2}

func open(t testing.TB, path string) *backend.Backend {
	t.Helper()
	be, err := backend.Open(path, backend.Options{Identity: identity, NoSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { be.Close() })
	return be
}

// server is two stores over a backend, written to with one counter.
type server struct {
	be     *backend.Backend
	stores []*store.Store
	rev    int64
}

func newServer(be *backend.Backend) *server {
	return &server{be: be, stores: stores(2, be), rev: 1}
}

func (s *server) of(key string) *store.Store { return s.stores[benchRoute(2)([]byte(key))] }

func (s *server) put(key, value string) {
	s.rev++
	s.of(key).Put(store.Revision{Main: s.rev}, []byte(key), []byte(value), 0)
}

func (s *server) remove(key string) {
	s.rev++
	s.of(key).Delete(store.Revision{Main: s.rev}, []byte(key))
}

func (s *server) compact(rev int64) {
	for _, s := range s.stores {
		s.Compact(rev)
	}
}

// fill writes n keys three times each, removes every third, and flushes.
func (s *server) fill(t testing.TB, n int) {
	for round := range 3 {
		for i := range n {
			s.put(fmt.Sprintf("key-%05d", i), fmt.Sprintf("value %d of %d", round, i))
		}
		flush(t, s.be, s.stores)
	}
	for i := 0; i < n; i += 3 {
		s.remove(fmt.Sprintf("key-%05d", i))
	}
	flush(t, s.be, s.stores)
}

// dump is everything in the history, for comparing.
func dump(t testing.TB, be *backend.Backend) string {
	var b bytes.Buffer
	require.NoError(t, be.Scan(0, backend.Current, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		fmt.Fprintln(&b, rev, tombstone, kv.String())
		return true
	}))
	return b.String()
}

func TestEmptyFileIsSmall(t *testing.T) {
	// etcd's own tests give servers a quota of 13 pages.
	be, err := backend.Open(filepath.Join(t.TempDir(), "db"), backend.Options{
		Identity: identity, Quota: int64(13 * os.Getpagesize()), NoSync: true,
	})
	require.NoError(t, err)
	defer be.Close()
	require.LessOrEqual(t, be.Size(), int64(8*os.Getpagesize()))
	for range 20 {
		flush(t, be, stores(2, be))
	}
	require.LessOrEqual(t, be.Size(), int64(8*os.Getpagesize()))
	require.LessOrEqual(t, be.SizeInUse(), be.Size())
}

func TestMetaSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	be := open(t, path)
	s := stores(2, be)
	for i, s := range s {
		s.SetApplied(uint64(10+i), 3)
		s.SetRev(17)
		s.Compact(5)
	}
	alarm := &etcdserverpb.AlarmMember{MemberID: 9, Alarm: etcdserverpb.AlarmType_NOSPACE}
	members := []backend.Member{{ID: 0xab, Name: "a", PeerURLs: []string{"http://a:1"}, ClientURLs: []string{"http://a:2"}}}
	cut := func(sys backend.System) {
		c := &backend.Cut{Partitions: []store.Cut{s[0].Cut(), s[1].Cut()}, System: sys}
		require.NoError(t, be.Flush(c))
		for i := range s {
			s[i].Release(c.Partitions[i])
		}
	}
	cut(backend.System{
		Leases:   []backend.Lease{{ID: 1, TTL: 60, Owner: 1 << 63, Number: 9}, {ID: -2, TTL: 10, Remaining: 4, Number: 1 << 63}, {ID: 3, TTL: 1}},
		AlarmsOn: []*etcdserverpb.AlarmMember{alarm, {MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}},
		Members:  append(members, backend.Member{ID: 1, PeerURLs: []string{"http://gone"}}),
		Blobs:    map[string][]byte{"map": {1, 2}, "other": {3}},
	})
	cut(backend.System{
		LeasesRevoked: []int64{3},
		AlarmsOff:     []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}},
		Members:       members,
		Blobs:         map[string][]byte{"other": nil},
	})
	require.NoError(t, be.Close())

	m, err := open(t, path).Meta()
	require.NoError(t, err)
	require.Len(t, m.Alarms, 1)
	require.True(t, proto.Equal(alarm, m.Alarms[0]))
	m.Alarms = nil
	require.Equal(t, backend.Meta{
		Identity:  identity,
		Level:     version.Oldest,
		Positions: []backend.Position{{Index: 10, Term: 3, Rev: 17}, {Index: 11, Term: 3, Rev: 17}},
		Compacted: 5, Finished: 5,
		Leases:  []backend.Lease{{ID: 1, TTL: 60, Owner: 1 << 63, Number: 9}, {ID: -2, TTL: 10, Remaining: 4, Number: 1 << 63}},
		Members: members,
		Blobs:   map[string][]byte{"map": {1, 2}},
	}, m)
}

func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, open(t, path).Close())
	try := func(id backend.Identity) error {
		be, err := backend.Open(path, backend.Options{Identity: id})
		if err == nil {
			require.NoError(t, be.Close())
		}
		return err
	}
	for _, id := range []backend.Identity{
		{Cluster: 0xd, Server: 5, Partitions: 2},
		{Cluster: 0xc, Server: 5, Partitions: 3},
	} {
		err := try(id)
		require.ErrorIs(t, err, backend.ErrForeign)
		require.ErrorContains(t, err, path)
	}
	require.NoError(t, try(backend.Identity{}))

	// A snapshot of another server of the cluster becomes this server's file.
	require.NoError(t, try(backend.Identity{Cluster: 0xc, Server: 6, Partitions: 2}))
	be, err := backend.Open(path, backend.Options{})
	require.NoError(t, err)
	require.Equal(t, uint64(6), be.Identity().Server)

	_, err = backend.Open(path, backend.Options{})
	require.ErrorIs(t, err, backend.ErrInUse)
	require.ErrorContains(t, err, path)
	require.NoError(t, be.Close())

	_, err = backend.Open(filepath.Join(t.TempDir(), "none"), backend.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSnapshotInstall(t *testing.T) {
	dir := t.TempDir()
	s := newServer(open(t, filepath.Join(dir, "db")))
	s.fill(t, 300)
	s.stores[1].SetApplied(42, 7)
	flush(t, s.be, s.stores)
	want := dump(t, s.be)
	snap, err := s.be.Snapshot()
	require.NoError(t, err)
	require.Equal(t, backend.Position{Index: 42, Term: 7, Rev: s.stores[1].Rev()}, snap.Positions[1])

	// Neither flushes nor a defragmentation disturb an open snapshot.
	s.fill(t, 300)
	require.NoError(t, s.be.Defragment())
	s.fill(t, 300)
	var b bytes.Buffer
	n, err := snap.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, snap.Size, n)
	require.NoError(t, snap.Close())

	path := filepath.Join(dir, "other")
	require.NoError(t, open(t, path).Close())
	require.NoError(t, backend.Receive(path, identity, bytes.NewReader(b.Bytes())))
	require.NoError(t, backend.Install(path))
	require.Equal(t, want, dump(t, open(t, path)))

	// A truncated one is refused, and the old file stays, and nothing else.
	third := filepath.Join(dir, "third")
	require.NoError(t, open(t, third).Close())
	err = backend.Receive(third, identity, bytes.NewReader(b.Bytes()[:b.Len()-4096]))
	require.ErrorIs(t, err, backend.ErrDamaged)
	require.ErrorContains(t, err, third)
	require.ErrorIs(t, backend.Install(third), os.ErrNotExist)
	require.Empty(t, dump(t, open(t, third)))

	// So is one of another cluster.
	require.ErrorIs(t, backend.Receive(third, backend.Identity{Cluster: 0xd, Server: 0x5}, bytes.NewReader(b.Bytes())), backend.ErrForeign)
	require.ErrorIs(t, backend.Install(third), os.ErrNotExist)
}

// A load that rests loads the same, in the same order.
func TestLoadWithRests(t *testing.T) {
	s := newServer(open(t, filepath.Join(t.TempDir(), "db")))
	s.fill(t, 3000)
	flush(t, s.be, s.stores)
	var want, got [][]byte
	var rests atomic.Int64
	for _, rest := range []func(){nil, func() { rests.Add(1) }} {
		want, got = got, nil
		loaded := newServer(s.be)
		require.NoError(t, s.be.Load(loaded.stores, benchRoute(2), rest))
		for _, st := range loaded.stores {
			for _, rev := range []int64{0, s.rev / 2} { // now, and history
				found, err := st.Range([]byte{0}, []byte{0}, rev, 0)
				require.NoError(t, err)
				require.NoError(t, st.Resolve(&found))
				for _, kv := range found.Kvs {
					got = append(got, kv.Wire())
				}
			}
		}
	}
	require.NotEmpty(t, got)
	require.Equal(t, want, got)
	require.Greater(t, rests.Load(), int64(5))
}

// A backup has the same content with and without pauses, and calls busy after
// each piece.
func TestBackup(t *testing.T) {
	s := newServer(open(t, filepath.Join(t.TempDir(), "db")))
	for range 4 {
		s.put("a", strings.Repeat("v", 1<<20))
		flush(t, s.be, s.stores)
	}
	snap, err := s.be.Snapshot()
	require.NoError(t, err)
	defer func() { require.NoError(t, snap.Close()) }()
	var want bytes.Buffer
	_, err = snap.WriteTo(&want)
	require.NoError(t, err)
	for _, busy := range []bool{false, true} {
		var got bytes.Buffer
		asked := 0
		n, err := snap.Backup(&got, func() bool {
			asked++
			return busy
		})
		require.NoError(t, err)
		require.Equal(t, snap.Size, n)
		require.Equal(t, want.Bytes(), got.Bytes())
		require.GreaterOrEqual(t, asked, int(snap.Size>>20))
	}
}

func TestCloseDoesNotWaitForASlowSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.fill(t, 300)
	snap, err := s.be.Snapshot()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, s.be.Close())
	require.Less(t, time.Since(began), 2*time.Second)
	_, err = s.be.Meta()
	require.ErrorIs(t, err, store.ErrClosed)
	var b bytes.Buffer
	n, err := snap.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, snap.Size, n)
	require.NoError(t, snap.Close())
	require.Eventually(t, func() bool {
		be, err := backend.Open(path, backend.Options{})
		if err == nil {
			require.NoError(t, be.Close())
		}
		return err == nil
	}, 5*time.Second, 10*time.Millisecond)
}

func TestMemMatchesTheFile(t *testing.T) {
	file, mem := newServer(open(t, filepath.Join(t.TempDir(), "db"))), newServer(backend.NewMem(identity))
	for _, s := range []*server{file, mem} {
		s.fill(t, 50)
		s.compact(70)
		for range 3 {
			flush(t, s.be, s.stores)
		}
	}
	require.Equal(t, dump(t, file.be), dump(t, mem.be))
	one, err := file.be.Hash()
	require.NoError(t, err)
	two, err := mem.be.Hash()
	require.NoError(t, err)
	require.Equal(t, one, two)

	snap, err := mem.be.Snapshot()
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = snap.WriteTo(&b)
	require.NoError(t, err)
	copied, err := backend.ReadMem(identity, &b)
	require.NoError(t, err)
	require.Equal(t, dump(t, mem.be), dump(t, copied))
}

func TestDefragment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.fill(t, 2000)
	s.compact(s.rev)
	for range 10 { // a compaction takes several
		flush(t, s.be, s.stores)
	}
	want, before := dump(t, s.be), s.be.Size()
	require.Less(t, s.be.SizeInUse(), before/2)
	require.NoError(t, s.be.Defragment())
	require.Less(t, s.be.Size(), before/2)
	require.Equal(t, want, dump(t, s.be))
	s.put("after", "it")
	flush(t, s.be, s.stores)
	want = dump(t, s.be)
	require.NoError(t, s.be.Close())
	require.Equal(t, want, dump(t, open(t, path)))
}

// A file that is copied in several pieces is the same, and as small as one that is
// copied at once.
func TestDefragmentInPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	value := strings.Repeat("v", 1<<10)
	for i := range 5000 {
		s.put(fmt.Sprintf("/p/%d", i), value)
	}
	s.put("/large", strings.Repeat("l", 1<<20))
	flush(t, s.be, s.stores)
	want := dump(t, s.be)
	require.NoError(t, s.be.Defragment())
	require.Equal(t, want, dump(t, s.be))
	require.Less(t, s.be.SizeInUse(), int64(7<<20), "6 MiB of values")
	require.Less(t, s.be.Size(), int64(8<<20))
	require.NoError(t, s.be.Close())
	require.Equal(t, want, dump(t, open(t, path)))
}

func TestFlushOfOtherPartitions(t *testing.T) {
	be := backend.NewMem(identity)
	require.ErrorContains(t, be.Flush(&backend.Cut{}), "partitions")
	require.Error(t, be.Load(stores(1, be), benchRoute(1), nil))
}

// The place in the log is the server's that wrote it: a file that has come as a snapshot
// says nothing about the log beside it.
func TestThePlaceInTheLogBelongsToItsServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	at := backend.LogPlace{Segment: 3, Offset: 1 << 20}
	s := newServer(open(t, path))
	cut := &backend.Cut{System: backend.System{Log: at}}
	for _, st := range s.stores {
		cut.Partitions = append(cut.Partitions, st.Cut())
	}
	require.NoError(t, s.be.Flush(cut))
	flush(t, s.be, s.stores) // without one: it stays
	m, err := s.be.Meta()
	require.NoError(t, err)
	require.Equal(t, at, m.Log)
	id := s.be.Identity()
	require.NoError(t, s.be.Close())

	id.Server++
	be, err := backend.Open(path, backend.Options{Identity: id})
	require.NoError(t, err)
	m, err = be.Meta()
	require.NoError(t, err)
	require.Zero(t, m.Log)
	require.NoError(t, be.Close())
	be = open(t, path)
	m, err = be.Meta()
	require.NoError(t, err)
	require.Equal(t, at, m.Log, "it is there for its own server only")
}
