package backend_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/version"
)

// summed returns a file of the newest level, with keys, some of them overwritten and deleted.
func summed(t *testing.T, keys int) (path string, s *server) {
	path = filepath.Join(t.TempDir(), "db")
	s = newServer(open(t, path))
	setLevel(t, s.be, s.stores, version.Newest)
	s.fill(t, keys)
	return path, s
}

// edit changes a file that no server has open.
func edit(t *testing.T, path string, change func(tx *bolt.Tx) error) {
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
}

func load(t *testing.T, path string) (*server, error) {
	be, err := backend.Open(path, backend.Options{Identity: identity, NoSync: true})
	if err != nil {
		return nil, err
	}
	s := newServer(be)
	if err := be.Load(s.stores, benchRoute(2), nil); err != nil {
		require.NoError(t, be.Close())
		return nil, err
	}
	t.Cleanup(func() { be.Close() })
	return s, nil
}

// damage are changes of a file which bbolt's structure doesn't show.
var damage = map[string]struct {
	change func(keys *bolt.Bucket) error
	says   string
}{
	"a value": {func(b *bolt.Bucket) error {
		k, v := written(b, "key-00098")
		return b.Put(k, flipped(v, len(v)-12))
	}, `, key "key-00098" (revision 300)`},
	"a tombstone is lost": {func(b *bolt.Bucket) error {
		k, _ := written(b, "key-00099")
		return b.Delete(k)
	}, `, key "key-00099" (revision 301)`},
	"a key is lost": {func(b *bolt.Bucket) error {
		for k, _ := written(b, "key-00098"); k != nil; k, _ = written(b, "key-00098") {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	}, "a 1/64 of the keys"},
}

// written returns the last record of a key, nil if there is none.
func written(b *bolt.Bucket, key string) (k, v []byte) {
	c := b.Cursor()
	for k, v = c.Last(); k != nil && !bytes.Contains(v, []byte(key)); k, v = c.Prev() {
	}
	return bytes.Clone(k), v
}

func flipped(v []byte, at int) []byte {
	v = bytes.Clone(v)
	v[at] ^= 0x10
	return v
}

func TestDamagedKeysAreRefused(t *testing.T) {
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			path, s := summed(t, 100)
			require.NoError(t, s.be.Close())
			edit(t, path, func(tx *bolt.Tx) error { return d.change(tx.Bucket([]byte("key"))) })
			_, err := load(t, path)
			require.ErrorIs(t, err, backend.ErrDamaged)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, d.says)

			// Of another server they aren't taken in.
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			there := filepath.Join(t.TempDir(), "db")
			require.ErrorIs(t, backend.Receive(there, identity, bytes.NewReader(raw)), backend.ErrDamaged)
			require.ErrorIs(t, backend.Install(there), os.ErrNotExist)
		})
	}
}

// A bit of any page: the file is refused, or the keys that exist are the same.
func TestNoFlippedBitReachesAKey(t *testing.T) {
	path, s := summed(t, 12)
	want := current(s)
	require.NoError(t, s.be.Close())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw = raw[:pages(raw)*page]
	refused, rng := 0, rand.New(rand.NewPCG(3, 4))
	for range *flips {
		bit := 8*2*page + rng.IntN(8*(pages(raw)-2)*page)
		if at := recorded(raw, rng); rng.IntN(3) > 0 {
			bit = 8*at + rng.IntN(8)
		}
		raw[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		if s, err := load(t, path); err != nil {
			refused++
		} else {
			require.Equal(t, want, current(s), "bit %d", bit)
			require.NoError(t, s.be.Close())
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
	t.Logf("%d bits, %d files refused", *flips, refused)
	require.Positive(t, refused)
}

// recorded is a place in or near a record.
func recorded(raw []byte, rng *rand.Rand) int {
	for at := rng.IntN(len(raw)); ; at = rng.IntN(len(raw)) {
		if i := bytes.Index(raw[at:], []byte("key-")); i >= 0 && at > 2*page {
			return at + i - 20 + rng.IntN(50)
		}
	}
}

// current is what the stores hold, sorted.
func current(s *server) (all []string) {
	for _, s := range s.stores {
		f, err := s.Range([]byte{0}, []byte{0}, 0, 0)
		if err != nil {
			panic(err)
		}
		for _, kv := range f.Kvs {
			all = append(all, kv.String())
		}
	}
	slices.Sort(all)
	return all
}

// Below the level there are no sums, and a cluster that goes down to it loses them: an
// earlier release would not keep them up.
func TestSumsAreOfTheirLevel(t *testing.T) {
	path, s := summed(t, 10)
	has := func() (yes bool) {
		require.NoError(t, s.be.Close())
		edit(t, path, func(tx *bolt.Tx) error {
			yes = tx.Bucket([]byte("stoa")).Get([]byte("sums")) != nil
			return nil
		})
		var err error
		s, err = load(t, path)
		require.NoError(t, err)
		return yes
	}
	require.True(t, has())
	setLevel(t, s.be, s.stores, 3)
	require.False(t, has())
	setLevel(t, s.be, s.stores, 4)
	require.True(t, has())
}

// Positions that aren't those of the sums are damage, too.
func TestDamagedPositionIsRefused(t *testing.T) {
	path, s := summed(t, 10)
	require.NoError(t, s.be.Close())
	edit(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("stoa"))
		return b.Put([]byte("position/001"), flipped(b.Get([]byte("position/001")), 7))
	})
	_, err := load(t, path)
	require.ErrorIs(t, err, backend.ErrDamaged)
	require.ErrorContains(t, err, "other positions")
}

// What a server has is received at any time, however its keys came about and however far compactions have come.
func TestASoundSnapshotIsReceived(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	setLevel(t, s.be, s.stores, version.Newest)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		for range rng.IntN(40) {
			switch key := "key-" + string(rune('a'+rng.IntN(12))); rng.IntN(4) {
			case 0:
				s.remove(key)
			case 1:
				s.put(key, "")
			default:
				s.put(key, key+"'s value")
			}
		}
		if s.rev > 1 && rng.IntN(4) == 0 {
			s.compact(s.rev - int64(rng.IntN(5)))
		}
		flush(t, s.be, s.stores)
		snap, err := s.be.Snapshot()
		require.NoError(t, err)
		var content bytes.Buffer
		_, err = snap.WriteTo(&content)
		require.NoError(t, err)
		require.NoError(t, snap.Close())
		require.NoError(t, backend.Receive(path, identity, &content))
	}
	require.NoError(t, backend.Discard(path))
}
