package sequencer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/placement"
)

func reserve(t require.TestingT, s *Sequencer, parts placement.Set, n int) int64 {
	var first int64
	require.NoError(t, s.Reserve(parts, n, func(_ uint64, stamp int64) { first = stamp }))
	return first
}

func closed(t require.TestingT, s *Sequencer, p int) int64 {
	c, ok := s.Closed(p)
	require.True(t, ok)
	return c
}

func TestReservesOnlyInsideAnEpoch(t *testing.T) {
	s := New(2)
	fail := func(uint64, int64) { t.Fatal("stamped outside of an epoch") }
	require.ErrorIs(t, s.Reserve(placement.Of(0), 1, fail), ErrClosed)
	_, ok := s.Closed(0)
	require.False(t, ok)

	s.Open(3, 41)
	require.EqualValues(t, 42, reserve(t, s, placement.Of(1), 2))
	require.EqualValues(t, 44, reserve(t, s, placement.Of(0), 1))
	s.Close()
	require.ErrorIs(t, s.Reserve(placement.Of(0), 1, fail), ErrClosed)
}

// A stamp that was reserved but not committed is lost with its epoch. Nothing
// may have been closed through it, since the next leader gives it out again.
func TestReservesInOneEpoch(t *testing.T) {
	s := New(2)
	in := func(epoch uint64) error {
		return s.ReserveIn(epoch, placement.Of(0), 1, func(uint64, int64) {})
	}
	require.ErrorIs(t, in(1), ErrClosed)
	s.Open(1, 10)
	require.EqualValues(t, 1, s.Epoch())
	require.NoError(t, in(1))
	require.ErrorIs(t, in(2), ErrClosed)
	s.Close()
	s.Open(2, 20)
	require.ErrorIs(t, in(1), ErrClosed)
	require.NoError(t, in(2))
	require.NoError(t, in(0))
	require.EqualValues(t, 22, s.Last(), "what was refused took no stamp")
}

func TestClosedFollowsTheCommittedWatermarkNotTheCounter(t *testing.T) {
	s := New(2)
	s.Open(1, 10)
	reserve(t, s, placement.Of(0), 5) // 11 … 15
	require.EqualValues(t, 10, closed(t, s, 0))
	require.EqualValues(t, 10, closed(t, s, 1), "15 isn't committed")

	s.Commit(15)
	require.EqualValues(t, 10, closed(t, s, 0), "committed, and not applied here")
	require.EqualValues(t, 15, closed(t, s, 1))

	s.Applied(0, 15)
	require.EqualValues(t, 15, closed(t, s, 0))
}

// The floor is published before the counter moves: between the two, another
// lane may take the next stamp, commit it, and so raise C above ours.
func TestAReaderCantSlipBetweenCounterAndFloor(t *testing.T) {
	s := New(2)
	s.Open(1, 10)
	s.moved = func() {
		s.moved = nil
		require.EqualValues(t, 12, reserve(t, s, placement.Of(1), 1))
		s.Commit(12)
		require.EqualValues(t, 10, closed(t, s, 0), "11 is on its way in partition 0")
	}
	require.EqualValues(t, 11, reserve(t, s, placement.Of(0), 1))
	require.Nil(t, s.moved)
}

func TestAnEntryWithoutStampsTakesNoNumber(t *testing.T) {
	s := New(2)
	s.Open(1, 7)
	require.EqualValues(t, 8, reserve(t, s, placement.Of(0)|placement.Of(1), 0))
	require.EqualValues(t, 8, reserve(t, s, placement.Of(0), 1))
	require.EqualValues(t, 9, reserve(t, s, placement.Of(0)|placement.Of(1), 0))
}

func TestFloorsOutliveTheEpoch(t *testing.T) {
	s := New(1)
	s.Open(1, 1)
	reserve(t, s, placement.Of(0), 1)
	s.Close()
	require.EqualValues(t, 2, s.Floor(0), "whether stamp 2 takes effect is undecided")
	s.Open(2, 2)
	require.EqualValues(t, 2, closed(t, s, 0))
}

// TestModel holds lanes, stamps and closed revisions against a naive model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const parts = 3
		s := New(parts)
		s.Open(1, 1)
		type entry struct{ first, last int64 }
		var queues [parts][]entry
		next, committed := int64(2), int64(1)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				set := placement.Set(rapid.Uint64Range(1, 1<<parts-1).Draw(t, "parts"))
				n := rapid.IntRange(0, 4).Draw(t, "n")
				require.Equal(t, next, reserve(t, s, set, n))
				if n > 0 {
					for p := range set.Each() {
						queues[p] = append(queues[p], entry{next, next + int64(n) - 1})
					}
				}
				next += int64(n)
			},
			"commit and apply": func(t *rapid.T) {
				p := rapid.IntRange(0, parts-1).Draw(t, "p")
				if len(queues[p]) == 0 {
					t.Skip("nothing waits")
				}
				e := queues[p][0]
				committed = max(committed, e.last)
				s.Commit(e.last)
				if rapid.Bool().Draw(t, "apply") {
					queues[p] = queues[p][1:]
					s.Applied(p, e.last)
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, committed, s.Committed())
				for p := range parts {
					want := committed
					if len(queues[p]) > 0 {
						want = min(want, queues[p][0].first-1)
					}
					require.Equal(t, want, closed(t, s, p))
				}
			},
		})
	})
}

// TestNothingComesBelowAClosedRevision runs lanes and readers at once: no
// write may be stamped at or below a revision that a reader saw closed.
func TestNothingComesBelowAClosedRevision(t *testing.T) {
	const parts, entries = 3, 3000
	s := New(parts)
	s.Open(1, 1)
	var seen [parts]atomic.Int64 // the highest closed revision any reader got
	var stop atomic.Bool
	var lanes, readers sync.WaitGroup
	for p := range parts {
		lanes.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for range entries {
				n := 1 + rng.IntN(3)
				first := reserve(t, s, placement.Of(p), n)
				s.Commit(first + int64(n) - 1)
				if c := seen[p].Load(); first <= c {
					t.Errorf("partition %d: stamp %d is applied after %d was closed", p, first, c)
					return
				}
				s.Applied(p, first+int64(n)-1)
			}
		})
		readers.Go(func() {
			for !stop.Load() {
				c, _ := s.Closed(p)
				for old := seen[p].Load(); c > old && !seen[p].CompareAndSwap(old, c); {
					old = seen[p].Load()
				}
			}
		})
	}
	lanes.Wait()
	stop.Store(true)
	readers.Wait()
}

func BenchmarkReserveCommitApply(b *testing.B) {
	s := New(4)
	s.Open(1, 1)
	b.ReportAllocs()
	var lane atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		p := int(lane.Add(1)-1) % 4
		for pb.Next() {
			var last int64
			_ = s.Reserve(placement.Of(p), 16, func(_ uint64, stamp int64) { last = stamp + 15 })
			s.Commit(last)
			s.Applied(p, last)
		}
	})
}

// BenchmarkShared is what all partitions of a server share of the sequencer, for one write: each of P
// loops stamps batches of 16, commits and applies them, and asks what is closed.
func BenchmarkShared(b *testing.B) {
	const batch = 16
	for _, partitions := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("P=%d", partitions), func(b *testing.B) {
			s := New(partitions)
			s.Open(1, 1)
			var loops sync.WaitGroup
			for p := range partitions {
				loops.Go(func() {
					for range b.N / partitions / batch {
						var last int64
						_ = s.Reserve(placement.Of(p), batch, func(_ uint64, stamp int64) { last = stamp + batch - 1 })
						s.Commit(last)
						s.Applied(p, last)
						_, _ = s.Closed(p)
					}
				})
			}
			loops.Wait()
		})
	}
}

func BenchmarkClosed(b *testing.B) {
	s := New(4)
	s.Open(1, 1)
	for b.Loop() {
		_, _ = s.Closed(2)
	}
}
