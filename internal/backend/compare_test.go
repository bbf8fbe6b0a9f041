package backend_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

// compare makes a whole pass.
func (s *server) compare() error {
	for _, st := range s.stores {
		for from := []byte(nil); ; {
			next, err := s.be.Compare(st, from, 1000)
			if err != nil {
				return err
			}
			if from = next; from == nil {
				break
			}
		}
	}
	return nil
}

// Nothing differs, whatever is overwritten, deleted, moved, compacted and not yet flushed; a bit
// in the file, or in memory, does.
func TestCompareFindsABit(t *testing.T) {
	path, s := summed(t, 100)
	require.NoError(t, s.compare())
	for i := range 100 {
		s.put(fmt.Sprintf("key-%05d", i), "later")
		if i%7 == 0 {
			s.compact(s.rev)
			require.NoError(t, s.compare())
			flush(t, s.be, s.stores)
		}
		require.NoError(t, s.compare())
	}
	store.Move(s.stores, []byte("key-00020"), []byte("key-00040"), store.Route{To: func([]byte) (int, []byte) { return 0, nil }}, nil)
	require.NoError(t, s.compare())
	flush(t, s.be, s.stores)
	require.NoError(t, s.compare())

	kv := s.of("key-00050").Get([]byte("key-00050"))
	value := kv.Value()
	value[2] ^= 1 // the same memory
	err := s.compare()
	require.ErrorIs(t, err, backend.ErrDiffers)
	require.ErrorContains(t, err, fmt.Sprintf(`%s: memory and file differ in key "key-00050", revision %d.0`, path, kv.ModRevision()))
	value[2] ^= 1
	require.NoError(t, s.compare())

	require.NoError(t, s.be.Close())
	edit(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		k, v := b.Cursor().Last()
		return b.Put(bytes.Clone(k), flipped(v, len(v)-12))
	})
	s.be = open(t, path)
	require.ErrorIs(t, s.compare(), backend.ErrDiffers)
}

// A record of another encoder is the same if it says the same.
func TestCompareTakesAnyEncoding(t *testing.T) {
	path, s := summed(t, 1)
	s.put("k", "v")
	kv := s.of("k").Get([]byte("k"))
	flush(t, s.be, s.stores)
	require.NoError(t, s.be.Close())
	edit(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		k, _ := b.Cursor().Last()
		wire := kv.Wire()
		return b.Put(bytes.Clone(k), slices.Concat(wire[3:], wire[:3])) // the key last
	})
	s, err := load(t, path)
	require.NoError(t, err)
	require.Equal(t, kv.String(), s.of("k").Get([]byte("k")).String())
	require.NoError(t, s.compare())
}
