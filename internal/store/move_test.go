package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drain makes cuts of all stores together until nothing is left to do. It calls
// each with what has been removed so far and the compaction that is then said to
// be finished.
func drain(stores []*Store, each func(removed map[int64]bool, finished int64)) {
	removed := map[int64]bool{}
	for dirty := true; dirty; {
		cuts, finished := make([]Cut, len(stores)), int64(1<<62)
		for i, s := range stores {
			cuts[i] = s.Cut()
			finished = min(finished, cuts[i].Swept)
			for _, d := range cuts[i].Dead {
				removed[d.Main] = true
			}
		}
		each(removed, finished)
		dirty = false
		for i, s := range stores {
			s.Release(cuts[i])
			dirty = dirty || s.Dirty()
		}
	}
}

func twoStores() []*Store {
	stores := []*Store{New(nil), New(nil)}
	for _, s := range stores {
		s.Tighten()
	}
	return stores
}

// Invariant 5, also of a key that leaves revisions behind which the store it
// came from has found dead and not yet handed over.
func TestAMovedKeyDoesNotComeBack(t *testing.T) {
	stores := twoStores()
	for rev := int64(2); rev < 20; rev++ {
		stores[0].Put(Revision{Main: rev}, []byte("a"), nil, 0)
	}
	stores[0].Put(Revision{Main: 20}, []byte("z"), nil, 0)
	stores[0].Delete(Revision{Main: 21}, []byte("z"))
	stores[0].Put(Revision{Main: 22}, []byte("b"), nil, 0)
	compact := func(rev int64) {
		for _, s := range stores {
			s.Compact(rev)
		}
	}
	compact(21)
	for len(stores[0].sweep.dead) == 0 {
		for _, s := range stores {
			s.Release(s.Cut())
		}
	}
	require.Equal(t, int64(20), stores[0].sweep.dead[len(stores[0].sweep.dead)-1].Main)
	compact(22)
	require.Equal(t, 1, Move(stores, []byte("z"), []byte("z\x00"), func([]byte) int { return 1 }))
	drain(stores, func(removed map[int64]bool, _ int64) {
		require.False(t, removed[21] && !removed[20], "the tombstone goes before the value")
	})
	require.Zero(t, stores[1].keys.n)
}

// A compaction isn't finished while keys that came later still have dead.
func TestMovedKeysHoldTheirCompaction(t *testing.T) {
	stores := twoStores()
	rev := int64(1)
	for range 20 {
		for k := range 3 {
			rev++
			stores[0].Put(Revision{Main: rev}, fmt.Append(nil, k), nil, 0)
		}
	}
	stores[1].SetRev(rev)
	for _, s := range stores {
		s.Compact(rev)
	}
	for stores[1].Swept() < rev { // the one that has nothing to do is done at once
		stores[1].Release(stores[1].Cut())
	}
	require.Less(t, stores[0].Swept(), rev)
	Move(stores, []byte{0}, []byte{0}, func([]byte) int { return 1 })
	done := false
	drain(stores, func(removed map[int64]bool, finished int64) {
		if finished == rev {
			done = true
			require.Len(t, removed, 57, "all but the last three are dead")
		}
	})
	require.True(t, done)
}

// What the file has needn't be kept twice.
func TestArrivalsAreLetGo(t *testing.T) {
	stores := twoStores()
	stores[0].Put(Revision{Main: 2}, []byte("k"), []byte("old"), 0)
	before := stores[0].Cut()
	stores[0].Put(Revision{Main: 3}, []byte("k"), []byte("new"), 7)
	Move(stores, []byte("k"), []byte("l"), func([]byte) int { return 1 })
	f, err := stores[1].Range([]byte("k"), nil, 2, 0)
	require.NoError(t, err)
	require.True(t, f.Resolved(), "the cut with it isn't released")
	require.Len(t, stores[1].arrivals.fresh, 2)
	stores[0].Release(before)
	cut := stores[1].Cut()
	require.Len(t, stores[1].arrivals.cut, 2)
	stores[1].Release(cut)
	require.Empty(t, stores[1].arrivals.cut)
	require.Empty(t, stores[1].arrivals.fresh)
	require.Equal(t, [][]byte{[]byte("k")}, stores[1].LeaseKeys(7))
	require.Empty(t, stores[0].LeaseKeys(7))
}

// Pieces come to the end, each of as many keys as it may have, dead ones too.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stores := []*Store{New(nil), New(nil), New(nil)}
		rev, all := int64(1), rapid.IntRange(0, 40).Draw(t, "keys")
		for i := range all {
			s := stores[rapid.IntRange(0, 2).Draw(t, "store")]
			key := fmt.Appendf(nil, "k%02d", i)
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 3*marksPerKey + 1}).Draw(t, "revisions") {
				rev++
				s.Put(Revision{Main: rev}, key, nil, 0)
			}
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				rev++
				s.Delete(Revision{Main: rev}, key)
			}
		}
		for _, s := range stores {
			s.SetRev(rev)
		}
		budget := rapid.IntRange(1, 10).Draw(t, "budget")
		costs := func(key, end []byte) (sum, keys int) {
			for _, s := range stores {
				for _, o := range [...]*ordered{&s.live, &s.tombstones} {
					o.ascend(o.seek(key), o.below(end), func(e *entry) bool {
						sum, keys = sum+e.costs(), keys+1
						return true
					})
				}
			}
			return sum, keys
		}
		for key, more := []byte("k"), true; more; {
			stop, left := Piece(stores, key, []byte("l"), budget)
			end := stop
			if more = stop != nil; !more {
				end = []byte("l")
			}
			sum, keys := costs(key, end)
			require.True(t, keys <= 1 || sum <= budget, "%d keys that count for %d of %d", keys, sum, budget)
			require.True(t, keys > 0 || !more, "a piece without keys")
			if !more {
				require.Equal(t, max(0, budget-sum), left)
			}
			Move(stores, key, end, func([]byte) int { return 1 })
			key = end
		}
		require.Equal(t, all, stores[1].live.len()+stores[1].tombstones.len())
	})
}

// A step of 250 keys among 100,000, as they go when an extension is registered.
func BenchmarkPiece(b *testing.B) {
	stores := []*Store{New(nil), New(nil)}
	for i := range 100_000 {
		stores[i/100%2].Put(Revision{Main: int64(i + 2)}, fmt.Appendf(nil, "/s/%06d", i), []byte("value"), 0)
	}
	for _, s := range stores {
		s.SetRev(100_001)
		s.Release(s.Cut())
	}
	to, key := 0, []byte("/s/")
	for b.Loop() {
		stop, _ := Piece(stores, key, []byte("/s0"), 250)
		end := stop
		if end == nil {
			end = []byte("/s0")
		}
		Move(stores, key, end, func([]byte) int { return to })
		if key = end; stop == nil {
			key, to = []byte("/s/"), 1-to
		}
	}
}

func BenchmarkMove(b *testing.B) {
	stores := []*Store{New(nil), New(nil)}
	for i := range 100_000 {
		stores[0].Put(Revision{Main: int64(i + 2)}, fmt.Appendf(nil, "/s/%06d", i), []byte("value"), 0)
	}
	for _, s := range stores {
		s.Release(s.Cut())
	}
	to := 0
	for b.Loop() {
		to = 1 - to
		Move(stores, []byte("/s/"), []byte("/s0"), func([]byte) int { return to })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/key")
}
