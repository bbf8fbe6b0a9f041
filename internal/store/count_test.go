package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/store"
)

// Counts are made of whole leaves and parts of them, and must agree with what is plain
// to see, also where a bound is no key and where keys are dead.
func TestCount(t *testing.T) {
	s := store.New(nil)
	rev := int64(1)
	key := func(i int) []byte { return fmt.Appendf(nil, "k%05d", i) }
	for i := range 3000 {
		rev++
		s.Put(store.Revision{Main: rev}, key(i), nil, 0)
	}
	for i := 1; i < 3000; i += 2 {
		rev++
		s.Delete(store.Revision{Main: rev}, key(i))
	}
	for _, from := range []int{0, 1, 2, 777, 2000, 2999} {
		for _, to := range []int{0, 1, 2, 50, 778, 2600, 2999, 3000} {
			want := 0
			for i := from; i < to; i++ {
				want += (i + 1) % 2
			}
			n, err := s.Count(key(from), key(to), 0)
			require.NoError(t, err)
			require.Equal(t, want, n, "%d to %d", from, to)
			for _, limit := range []int{0, 1, 10, 200} {
				f, err := s.Range(key(from), key(to), 0, limit)
				require.NoError(t, err)
				require.Equal(t, want, f.Count, "%d to %d, limit %d", from, to, limit)
			}
		}
		n, err := s.Count(key(from), []byte{0}, 0)
		require.NoError(t, err)
		require.Equal(t, (3000-from)/2, n)
	}
	// The key of one zero byte is the first of all, though such an end is none.
	n, err := s.Count([]byte{0}, []byte{0}, 0)
	require.NoError(t, err)
	require.Equal(t, 1500, n)
	f, err := s.Range([]byte{0}, []byte{0}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, 1500, f.Count)
	require.True(t, f.Resolved())
}
