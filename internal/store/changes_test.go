package store_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
)

// A thousand changes of large values are more than a server has memory for: a read of history
// takes as many bytes as it is asked for, and the rest of the last revision.
func TestChangesTakeSoManyBytes(t *testing.T) {
	const size, revisions = 1000, 100
	be := backend.NewMem(backend.Identity{Cluster: 1, Partitions: 1})
	s := store.New(be)
	s.Tighten() // all but the last revisions are in the file only
	value := bytes.Repeat([]byte("x"), size)
	for rev := int64(2); rev < 2+revisions; rev++ {
		s.Put(store.Revision{Main: rev}, []byte("k"), value, 0)
		s.Put(store.Revision{Main: rev, Sub: 1}, []byte("other"), value, 0)
		cut := s.Cut()
		require.NoError(t, be.Flush(&backend.Cut{Partitions: []store.Cut{cut}}))
		s.Release(cut)
	}
	for name, c := range map[string]struct {
		end  string
		prev bool
		want int // changes of the first read
	}{
		"a key":                      {want: 5},
		"a key, and what was before": {prev: true, want: 3}, // the first has nothing before it
		"a range":                    {end: "z", want: 6},   // two in each revision
	} {
		t.Run(name, func(t *testing.T) {
			first, through, err := s.Changes([]byte("k"), []byte(c.end), 2, 1+revisions, store.Bounds{Changes: 1000, Bytes: 4*size + size/2}, c.prev)
			require.NoError(t, err)
			require.Len(t, first, c.want)
			require.Equal(t, first[c.want-1].Main, through)

			all, _, err := s.Changes([]byte("k"), []byte(c.end), 2, 1+revisions, store.Bounds{Changes: 1000}, c.prev)
			require.NoError(t, err)
			require.Greater(t, len(all), 90)
		})
	}
}
