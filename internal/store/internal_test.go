package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRevisionsOnlyGoForward(t *testing.T) {
	s := New(nil)
	put := func(main, sub int64) func() {
		return func() { s.Put(Revision{main, sub}, []byte("k"), nil, 0) }
	}
	require.Panics(t, put(1, 0), "a new store is at revision 1")
	require.NotPanics(t, put(2, 0))
	require.NotPanics(t, put(2, 1))
	require.Panics(t, put(2, 1))
	s.SetRev(7)
	require.Equal(t, int64(7), s.Rev())
	require.Panics(t, put(6, 0))
	require.NotPanics(t, put(8, 0))
}

// A cut is read while the store goes on, in the same chunk.
func TestCutIsFixed(t *testing.T) {
	s := New(nil)
	rev := int64(1)
	put := func(n int) {
		for range n {
			rev++
			s.Put(Revision{Main: rev}, []byte("k"), nil, 0)
		}
	}
	collect := func(c Cut) (revs []int64) {
		for ch := range c.Changes() {
			revs = append(revs, ch.Main)
		}
		return revs
	}
	put(10)
	c := s.Cut()
	put(3 * chunkChanges)
	require.Len(t, collect(c), 10)
	s.Release(c)
	c = s.Cut()
	got := collect(c)
	require.Len(t, got, 3*chunkChanges)
	require.Equal(t, int64(12), got[0])
	require.Equal(t, rev, got[len(got)-1])
	s.Release(c)
	c = s.Cut()
	require.Zero(t, c.Len())
}

// The hash table, the trees and the change log must not keep what is gone.
func TestNothingStaysAfterDeleteAndCompact(t *testing.T) {
	s := New(nil)
	s.Tighten()
	rev := int64(1)
	for range 3 {
		for i := range byte(200) {
			rev++
			s.Put(Revision{Main: rev}, []byte{'k', i}, []byte("v"), 5)
			rev++
			s.Delete(Revision{Main: rev}, []byte{'k', i})
		}
	}
	s.Compact(rev)
	for s.Dirty() {
		s.Release(s.Cut())
	}
	require.Equal(t, 1, s.keys.n, "the tombstone at the compaction itself stays")
	require.Equal(t, 1, s.tombstones.len())
	require.Zero(t, s.live.len())
	require.Empty(t, s.leases)
	require.Less(t, s.InMemory(), chunkChanges+1)
	require.Equal(t, rev, s.Swept())
}

// Where compactions come faster than what they make dead is removed, they are reported nevertheless, each when
// nothing of it is left.
func TestCompactionsEndThoughMoreCome(t *testing.T) {
	s := New(nil)
	s.Tighten()
	const keys = 7
	rev, ended, waited := int64(1), 0, 0
	removed := map[int64]bool{}
	for range 2000 {
		for range 60 {
			rev++
			s.Put(Revision{Main: rev}, []byte{'k', byte(rev % keys)}, []byte("v"), 0)
		}
		s.Compact(rev)
		c := s.Cut()
		for _, d := range c.Dead {
			removed[d.Main] = true
		}
		for dead := max(2, s.Swept()-keys+1); dead <= c.Swept-keys; dead++ {
			require.True(t, removed[dead], "revision %d isn't removed, and compaction %d has ended", dead, c.Swept)
		}
		if c.Swept > s.Swept() {
			ended++
		}
		s.Release(c)
		if len(s.sweep.dead) > 0 {
			waited++
		}
	}
	require.Greater(t, waited, 1900, "there is always more to do")
	require.Greater(t, ended, 100)
	require.Less(t, len(s.sweep.passes), 100)
}

// What was taken back leaves nothing behind that would only cost memory.
func TestUndoLeavesNothing(t *testing.T) {
	s := New(nil)
	for i := range byte(100) {
		s.Put(Revision{Main: int64(i) + 2}, []byte{'k', i}, []byte("v"), 5)
	}
	type sizes struct {
		chunks, bytes, live, tombstones, keys, leased int
		next                                          position
		last                                          Revision
		rev, lastDelete                               int64
	}
	size := func() sizes {
		return sizes{len(s.log.chunks), s.log.bytes, s.live.len(), s.tombstones.len(), s.keys.n, len(s.leases[5]),
			s.log.next, s.log.last, s.rev, s.lastDelete}
	}
	before, mark := size(), s.Mark()
	sub := int64(0)
	for round := range byte(3) {
		for i := range byte(200) {
			s.Put(Revision{1000, sub}, []byte{'k', i}, []byte("w"), int64(round))
			sub++
			if _, ok := s.Delete(Revision{1000, sub}, []byte{'k', i + round}); ok {
				sub++
			}
		}
	}
	require.NotEqual(t, before, size())
	s.Undo(mark)
	require.Equal(t, before, size())
	require.Len(t, s.leases, 1)
	s.Put(Revision{Main: 1000}, []byte("k"), nil, 0)
}
