package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// applyUpTo puts a key in each entry of a log, up to an index.
func (s *Store) applyUpTo(index uint64, value func(index uint64) string) {
	for s.index < index {
		i := s.index + 1
		s.Put(Revision{Main: s.rev + 1}, fmt.Appendf(nil, "key%d", i%50), []byte(value(i)), 0)
		s.SetApplied(i, 1)
	}
}

func same(uint64) string { return "value" }

// Two stores that execute the same log have the same windows, also if one of them has begun with more
// keys than the other; an entry that does something else changes its window, and that in which the
// difference is met again.
func TestWindows(t *testing.T) {
	a, b := New(nil), New(nil)
	b.Put(Revision{Main: 2}, []byte("one that came with the file"), nil, 0)
	a.SetRev(2)
	a.applyUpTo(1000, same)
	b.applyUpTo(900, same)
	list := a.Windows().Since(0)
	require.Len(t, list, 14, "15 have ended, and what the first has begun with isn't known")
	require.EqualValues(t, 128, list[0].End)
	require.EqualValues(t, 960, list[13].End)
	require.Equal(t, list[12:], a.Windows().Since(832))
	for _, w := range list[:13] {
		equal, reached := b.Windows().Compare(w)
		require.True(t, equal && reached, w)
	}
	_, reached := b.Windows().Compare(list[13])
	require.False(t, reached)

	b.applyUpTo(1024, func(i uint64) string {
		if i == 930 { // key30, which entry 980 overwrites
			return "other"
		}
		return "value"
	})
	a.applyUpTo(1024, same)
	var differ []uint64
	for _, w := range a.Windows().Since(0) {
		equal, reached := b.Windows().Compare(w)
		require.True(t, reached)
		if !equal {
			differ = append(differ, w.End)
		}
	}
	require.Equal(t, []uint64{960, 1024}, differ)
}

// What is forgotten, or was never known, isn't compared.
func TestWindowsAreForgotten(t *testing.T) {
	s := New(nil)
	s.applyUpTo(100*Window, same)
	list := s.Windows().Since(0)
	require.Len(t, list, keptWindows)
	equal, reached := s.Windows().Compare(WindowSum{End: list[0].End, Diff: list[0].Diff + 1})
	require.True(t, reached && !equal)
	for _, end := range []uint64{0, Window, list[0].End - Window, list[0].End + 1} {
		equal, reached = s.Windows().Compare(WindowSum{End: end, Diff: 1})
		require.True(t, reached && equal, end)
	}
	s.SetApplied(200*Window, 1) // as behind an installed snapshot
	require.Empty(t, s.Windows().Since(0))
}
