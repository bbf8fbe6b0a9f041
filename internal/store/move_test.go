package store

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/placement"
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

func twoStores() []*Store { return manyStores(2) }

func manyStores(n int) (stores []*Store) {
	for range n {
		stores = append(stores, New(nil))
	}
	for _, s := range stores {
		s.Tighten()
	}
	return stores
}

// Invariant 5, also of a key that leaves revisions behind which the store it
// came from has found dead and not yet handed over; by however many stores it has gone since.
func TestAMovedKeyDoesNotComeBack(t *testing.T) {
	for _, by := range [][]int{{1}, {1, 2}, {1, 2, 1}, {1, 2, 3}, {1, 0, 2}} {
		t.Run(fmt.Sprint(by), func(t *testing.T) { movedBy(t, by) })
	}
}

func movedBy(t *testing.T, by []int) {
	stores := manyStores(4)
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
	for _, to := range by {
		require.Equal(t, 1, Move(stores, []byte("z"), []byte("z\x00"), Route{To: func([]byte) (int, []byte) { return to, nil }}, nil))
	}
	drain(stores, func(removed map[int64]bool, _ int64) {
		require.False(t, removed[21] && !removed[20], "the tombstone goes before the value")
	})
	for _, s := range stores[1:] {
		require.Zero(t, s.keys.n)
	}
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
	Move(stores, []byte{0}, []byte{0}, Route{To: func([]byte) (int, []byte) { return 1, nil }}, nil)
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
	Move(stores, []byte("k"), []byte("l"), Route{To: func([]byte) (int, []byte) { return 1, nil }}, nil)
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

// Pieces come to the end, each of as many keys as it may have, dead ones too, and passes over
// no more keys that stay than it may. Beside it a naive model: all keys, one by one.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stores := []*Store{New(nil), New(nil), New(nil)}
		rev, all := int64(1), rapid.IntRange(0, 40).Draw(t, "keys")
		runs := rapid.SliceOfN(rapid.IntRange(-1, 2), 5, 5).Draw(t, "runs") // of ten keys; -1: each for itself
		to := func(i int) int {
			if r := runs[i/10]; r >= 0 {
				return r
			}
			return i % 3
		}
		asked := 0
		var still *[placement.Slots]bool
		if rapid.Bool().Draw(t, "with slots") {
			still = &[placement.Slots]bool{}
			for s := range still {
				still[s] = true
			}
		}
		route := Route{Still: still, To: func(key []byte) (int, []byte) {
			var i int
			_, err := fmt.Sscanf(string(key), "k%d", &i)
			require.NoError(t, err)
			require.True(t, still == nil || !still[placement.HashSlot(key)], "asked of %s, which is still", key)
			asked++
			if runs[i/10] >= 0 {
				return to(i), fmt.Appendf(nil, "k%d", (i/10+1)*10)
			}
			return to(i), nil
		}}
		for i := range all {
			at := rapid.IntRange(0, 2).Draw(t, "store")
			s, key := stores[at], fmt.Appendf(nil, "k%02d", i)
			if still != nil && at != to(i) {
				still[placement.HashSlot(key)] = false
			}
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 3*marksPerKey + 1}).Draw(t, "revisions") {
				rev++
				s.Put(Revision{Main: rev}, key, nil, 0)
			}
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				rev++
				s.Delete(Revision{Main: rev}, key)
			}
			if rapid.IntRange(0, 3).Draw(t, "flush") == 0 {
				s.Release(s.Cut())
			}
		}
		for _, s := range stores {
			s.SetRev(rev)
		}
		budget := Budget{rapid.IntRange(1, 10).Draw(t, "budget"), rapid.IntRange(1, 20).Draw(t, "visits")}
		home := func(e *entry) int {
			i, err := strconv.Atoi(string(e.key()[1:]))
			require.NoError(t, err)
			return to(i)
		}
		leave := func(key, end []byte) (costs, keys int) {
			for p, s := range stores {
				for _, o := range [...]*ordered{&s.live, &s.tombstones} {
					o.ascend(o.seek(key), o.below(end), func(e *entry) bool {
						if dest := home(e); dest != p {
							costs, keys = costs+s.costs(e, s.firstRecent()), keys+1
						}
						return true
					})
				}
			}
			return costs, keys
		}
		for key, more := []byte("k"), true; more; {
			stop, left := Piece(stores, key, []byte("l"), route, budget)
			end := stop
			if more = stop != nil; !more {
				end = []byte("l")
			}
			costs, keys := leave(key, end)
			require.True(t, keys <= 1 || costs <= budget.Keys, "%d keys that count for %d of %d", keys, costs, budget.Keys)
			require.Positive(t, bytes.Compare(end, key), "a piece without keys")
			if !more {
				require.Equal(t, max(0, budget.Keys-costs), left.Keys)
			}
			asked = 0
			var told int
			moved := Move(stores, key, end, route, func(from, to int, _ []byte, _ int) {
				require.NotEqual(t, from, to)
				told++
			})
			require.Equal(t, keys, moved)
			require.LessOrEqual(t, told, moved)
			require.LessOrEqual(t, asked, moved+6*(budget.Visits+1), "it passes over too many keys")
			key = end
		}
		for p, s := range stores {
			for _, o := range [...]*ordered{&s.live, &s.tombstones} {
				o.ascend(o.start(), o.end(), func(e *entry) bool {
					require.Equal(t, home(e), p, "%s", e.key())
					return true
				})
			}
		}
	})
}

// The history of a key that is in the file, and not dead, costs nothing: it goes along.
func TestHistoryCostsNoPieces(t *testing.T) {
	stores := []*Store{New(nil), New(nil)}
	rev := int64(1)
	for range 2000 {
		for k := range 20 {
			rev++
			stores[0].Put(Revision{Main: rev}, fmt.Appendf(nil, "k%02d", k), nil, 0)
		}
	}
	route := Route{To: func([]byte) (int, []byte) { return 1, nil }}
	stop, _ := Piece(stores, []byte("k"), []byte("l"), route, Budget{20, 20})
	require.Equal(t, "k01", string(stop), "what isn't in the file yet has to be looked up")
	stores[0].Release(stores[0].Cut())
	stop, left := Piece(stores, []byte("k"), []byte("l"), route, Budget{20, 20})
	require.Nil(t, stop)
	require.Zero(t, left.Keys)
	require.Equal(t, 20, Move(stores, []byte("k"), []byte("l"), route, nil))
}

// BenchmarkMoveHistory is a key with 5,000 revisions, all of them in the file.
func BenchmarkMoveHistory(b *testing.B) {
	stores := []*Store{New(nil), New(nil)}
	rev := int64(1)
	for range 5000 {
		for k := range 100 {
			rev++
			stores[0].Put(Revision{Main: rev}, fmt.Appendf(nil, "k%02d", k), []byte("value"), 0)
		}
	}
	for _, s := range stores {
		s.SetRev(rev)
		s.Release(s.Cut())
	}
	to := 0
	for b.Loop() {
		to = 1 - to
		Move(stores, []byte("k"), []byte("l"), Route{To: func([]byte) (int, []byte) { return to, nil }}, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/key")
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
		route := Route{To: func([]byte) (int, []byte) { return to, nil }}
		stop, _ := Piece(stores, key, []byte("/s0"), route, Budget{250, 20_000})
		end := stop
		if end == nil {
			end = []byte("/s0")
		}
		Move(stores, key, end, route, nil)
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
		Move(stores, []byte("/s/"), []byte("/s0"), Route{To: func([]byte) (int, []byte) { return to, nil }}, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/key")
}

// A step that passes over 200,000 flat keys which stay, and moves those of one slot.
func BenchmarkPassOver(b *testing.B) {
	const keys = 200_000
	stores := []*Store{New(nil), New(nil)}
	for i := range keys {
		stores[0].Put(Revision{Main: int64(i + 2)}, fmt.Appendf(nil, "key-%06d", i), []byte("value"), 0)
	}
	for _, s := range stores {
		s.SetRev(keys + 1)
		s.Release(s.Cut())
	}
	hot := placement.HashSlot([]byte("key-000000"))
	var still [placement.Slots]bool
	for s := range still {
		still[s] = s != hot
	}
	for _, with := range []*[placement.Slots]bool{nil, &still} {
		b.Run(fmt.Sprintf("slots=%v", with != nil), func(b *testing.B) {
			to, n := 1, 0
			route := Route{Still: with, To: func(key []byte) (int, []byte) {
				if placement.HashSlot(key) == hot {
					return to, nil
				}
				return 0, nil
			}}
			for b.Loop() {
				for key, more := []byte{0}, true; more; {
					end, _ := Piece(stores, key, []byte{0}, route, Budget{250, 20_000})
					if more = end != nil; !more {
						end = []byte{0}
					}
					n += Move(stores, key, end, route, nil)
					key = end
				}
				to = 1 - to
			}
			b.ReportMetric(float64(n)/float64(b.N), "keys/op")
			Move(stores, []byte{0}, []byte{0}, Route{To: func([]byte) (int, []byte) { return 0, nil }}, nil)
		})
	}
}
