package backend_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// used is a file with something of everything.
func used(t *testing.T, path string) {
	t.Helper()
	be := open(t, path)
	s := newServer(be)
	s.fill(t, 50)
	s.compact(20)
	for i := range s.stores {
		s.stores[i].SetApplied(uint64(100+i), 7)
	}
	cut := &backend.Cut{Partitions: []store.Cut{s.stores[0].Cut(), s.stores[1].Cut()}, System: backend.System{
		Leases:   []backend.Lease{{ID: 5, TTL: 60, Remaining: 10}},
		AlarmsOn: []*etcdserverpb.AlarmMember{{MemberID: 9, Alarm: etcdserverpb.AlarmType_NOSPACE}},
		Members:  []backend.Member{{ID: 1, Name: "old"}, {ID: 2, Name: "older"}},
		Blobs:    map[string][]byte{"session/000/0000000000000001": {1}, "placement": {2}},
	}}
	require.NoError(t, be.Flush(cut))
	require.NoError(t, be.Close())
}

// etcds makes a file of stoa's one of etcd's: without the bucket that etcd doesn't have,
// with more of its own.
func etcds(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		require.NoError(t, tx.DeleteBucket([]byte("stoa")))
		require.NoError(t, tx.DeleteBucket([]byte("members_removed")))
		require.NoError(t, tx.Bucket([]byte("cluster")).Put([]byte("clusterVersion"), []byte("3.5.0")))
		return tx.Bucket([]byte("key")).Put([]byte("\x00\x00\x00\x00\x00\x00\x27\x10_\x00\x00\x00\x00\x00\x00\x00\x00"), nil)
	}))
	require.NoError(t, db.Close())
}

var initial = backend.Initial{
	Identity:  backend.Identity{Cluster: 0xaa, Server: 0xbb, Partitions: 3},
	Members:   []backend.Member{{ID: 0xbb, Name: "new", PeerURLs: []string{"http://new"}}},
	Position:  backend.Position{Index: 1, Term: 1, Rev: 500},
	Compacted: 20,
	Blobs:     map[string][]byte{"placement": {3}},
}

func TestReset(t *testing.T) {
	for _, of := range []string{"stoa", "etcd"} {
		t.Run(of, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			used(t, path)
			be, err := backend.Open(path, backend.Options{})
			require.NoError(t, err)
			want := dump(t, be)
			before, err := be.StateSum()
			require.NoError(t, err)
			require.NoError(t, be.Close())
			if of == "etcd" {
				etcds(t, path)
				_, err := backend.Open(path, backend.Options{})
				require.ErrorIs(t, err, backend.ErrForeign)
			}
			be, err = backend.Open(path, backend.Options{Foreign: true})
			require.NoError(t, err)
			require.NoError(t, be.Reset(initial))
			after, err := be.StateSum()
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoError(t, be.Close())

			be, err = backend.Open(path, backend.Options{Identity: initial.Identity})
			require.NoError(t, err)
			defer be.Close()
			require.Equal(t, want, dump(t, be))
			m, err := be.Meta()
			require.NoError(t, err)
			require.Len(t, m.Alarms, 1)
			m.Alarms = nil
			at := initial.Position
			require.Equal(t, backend.Meta{
				Identity: initial.Identity, Level: version.Oldest, Positions: []backend.Position{at, at, at}, Compacted: 20, Finished: m.Finished,
				Leases: []backend.Lease{{ID: 5, TTL: 60, Remaining: 10}}, Members: initial.Members, Blobs: initial.Blobs,
			}, m)
			index, err := be.ConsistentIndex()
			require.NoError(t, err)
			require.EqualValues(t, 1, index)
			s := stores(3, be)
			require.NoError(t, be.Load(s, benchRoute(3), nil))
			require.EqualValues(t, 500, s[2].Rev())
			flush(t, be, s)
		})
	}
}

func TestStateSum(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	used(t, path)
	be := open(t, path)
	sum := func() uint64 {
		v, err := be.StateSum()
		require.NoError(t, err)
		return v
	}
	one := sum()
	require.NoError(t, be.Defragment())
	require.Equal(t, one, sum())
	s := stores(2, be)
	require.NoError(t, be.Load(s, benchRoute(2), nil))
	s[0].Put(store.Revision{Main: 900}, []byte("k"), nil, 0)
	flush(t, be, s)
	require.NotEqual(t, one, sum())
}

// Beside the empty value that `etcdutl snapshot restore --bump-revision` writes under a
// revision; etcd takes it for one of the empty key, the newest of which stays.
func TestHashKVOfABumpedRevision(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	used(t, path)
	be := open(t, path)
	want, _, err := be.HashKV(backend.Current, never)
	require.NoError(t, err)
	require.NoError(t, be.Close())
	hash := func(marks ...byte) uint32 {
		db, err := bolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			for _, rev := range marks {
				k := []byte("\x00\x00\x00\x00\x00\x00\x00\x00_\x00\x00\x00\x00\x00\x00\x00\x00")
				k[7] = rev
				if err := tx.Bucket([]byte("key")).Put(k, nil); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, db.Close())
		be, err := backend.Open(path, backend.Options{})
		require.NoError(t, err)
		defer be.Close()
		h, _, err := be.HashKV(backend.Current, never)
		require.NoError(t, err)
		return h
	}
	require.Equal(t, want, hash())
	one := hash(1)
	require.NotEqual(t, want, one)
	require.Equal(t, one, hash(0), "an older one is compacted")
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	used(t, path)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o400))
	be, err := backend.Open(path, backend.Options{ReadOnly: true})
	require.NoError(t, err)
	require.Error(t, be.Reset(initial))
	st, err := be.Status()
	require.NoError(t, err)
	require.Equal(t, 33, st.Keys)
	require.EqualValues(t, 168, st.Revision)
	require.Equal(t, backend.StorageVersion, st.Version)
	require.NoError(t, be.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}

// Some other program's bbolt file.
func TestForeignIsEtcdsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = backend.Open(path, backend.Options{Foreign: true})
	require.ErrorIs(t, err, backend.ErrForeign)
	require.ErrorContains(t, err, "neither stoa nor etcd")
}
