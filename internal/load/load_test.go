package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/placement"
)

// run lets loops work for a while: each second the part of it that busy says, caused by
// commands for keys.
func run(m *Meter, where *placement.Map, from, to time.Duration, busy []float64, keys func(p int) []byte) {
	for at := from + 500*time.Millisecond; at <= to; at += 500 * time.Millisecond {
		for p, b := range busy {
			m.Worked(p, int64(b*5e8))
			for range 200 {
				if key := keys(p); key != nil {
					sample(m, where, key)
				}
			}
		}
		m.Fold(int64(at), where)
	}
}

func sample(m *Meter, where *placement.Map, key []byte) {
	at := where.Spot(key)
	m.Sample(&at, 1)
}

// keyIn draws keys of a directory that is in a partition.
func keyIn(where *placement.Map, p, i int) []byte {
	for n := 0; ; n++ {
		if key := fmt.Appendf(nil, "/d/%d-%d/k", n, i); where.Partition(key) == p {
			return key
		}
	}
}

// The loads of slots follow those of their partition's loop, with the time constant, and the
// slot that moves takes its load along at once.
func TestLoadsOfSlotsAddUpToTheirLoop(t *testing.T) {
	where := placement.New(2)
	var m Meter
	dirs := [2][3][]byte{}
	for p := range dirs {
		for i := range dirs[p] {
			dirs[p][i] = keyIn(where, p, i)
		}
	}
	turn := 0
	keys := func(p int) []byte { // the first has half of the load of its partition
		turn++
		return dirs[p][[]int{0, 1, 0, 2}[turn%4]]
	}
	run(&m, where, 0, time.Second, []float64{0.8, 0.2}, keys)
	s := m.Snapshot(where, 10)
	require.InDelta(t, 0.8*(1-math.Exp(-float64(time.Second)/float64(Window))), s.Loops(where)[0], 0.001)
	run(&m, where, time.Second, 40*time.Second, []float64{0.8, 0.2}, keys)
	s = m.Snapshot(where, 10)
	require.InDelta(t, 0.8, s.Loops(where)[0], 0.001)
	require.InDelta(t, 0.2, s.Loops(where)[1], 0.001)
	hot := where.Slot(dirs[0][0])
	require.InDelta(t, 0.4, s.Slots[hot], 0.01)
	require.Equal(t, string(placement.Prefix(dirs[0][0])), s.Hot[0][0].Prefix)
	require.InDelta(t, 0.4, s.Hot[0][0].Load, 0.01)
	require.Len(t, s.Hot[0], 3)
	require.Equal(t, 800*40*time.Millisecond, m.Time(0))

	moved := where.Assigned([]placement.Assignment{{Slot: hot, Partition: 1}})
	require.InDelta(t, 0.4, s.Loops(moved)[0], 0.01)
	require.InDelta(t, 0.6, s.Loops(moved)[1], 0.01)

	run(&m, where, 40*time.Second, 80*time.Second, []float64{0, 0}, func(int) []byte { return nil })
	s = m.Snapshot(where, 10)
	require.InDelta(t, 0, s.Loops(where)[0], 0.001)
	require.Empty(t, s.Hot[0], "an idle partition names nothing")
}

// The hottest slots are named by their hottest prefixes, and an idle slot is none of them.
func TestHottestSlots(t *testing.T) {
	where := placement.New(2)
	var m Meter
	one, two := keyIn(where, 1, 1), keyIn(where, 1, 2)
	turn := 0
	run(&m, where, 0, 40*time.Second, []float64{0, 0.4}, func(p int) []byte {
		turn++
		switch {
		case p == 0:
			return nil
		case turn%4 == 0:
			return two
		}
		return one
	})
	s := m.Snapshot(where, Counters)
	slots := s.Hottest(5, where)
	require.Empty(t, slots[0])
	require.Len(t, slots[1], 2)
	for i, key := range [][]byte{one, two} {
		require.Equal(t, where.Slot(key), slots[1][i].Slot)
		require.Equal(t, string(placement.Prefix(key)), slots[1][i].Prefix)
	}
	require.Greater(t, slots[1][0].Load, slots[1][1].Load)
	require.InDelta(t, 0.4, slots[1][0].Load+slots[1][1].Load, 0.01)
	require.Len(t, s.Hottest(1, where)[1], 1)

	moved := where.Assigned([]placement.Assignment{{Slot: where.Slot(one), Partition: 0}})
	require.Equal(t, where.Slot(one), s.Hottest(5, moved)[0][0].Slot, "a slot that moves takes its load along")

	run(&m, where, 40*time.Second, 80*time.Second, []float64{0, 0}, func(int) []byte { return nil })
	require.Empty(t, m.Snapshot(where, Counters).Hottest(5, where)[1])
}

// Work that comes without commands for keys, as Raft's own does, belongs to no slot.
func TestWorkWithoutKeysIsNoSlots(t *testing.T) {
	where := placement.New(1)
	var m Meter
	run(&m, where, 0, 30*time.Second, []float64{0.1}, func(int) []byte { return nil })
	s := m.Snapshot(where, 10)
	require.InDelta(t, 0.1, s.Rest[0], 0.001)
	require.InDelta(t, 0.1, s.Loops(where)[0], 0.001)
	require.Zero(t, s.Slots)
}

// A clock that stands still, or a second call at once, changes nothing.
func TestFoldNeedsTime(t *testing.T) {
	where := placement.New(1)
	var m Meter
	m.Worked(0, 1e9)
	m.Fold(2e9, where)
	before := m.Snapshot(where, 1)
	m.Fold(2e9, where)
	m.Fold(1e9, where)
	require.Equal(t, before, m.Snapshot(where, 1))
}

// The sketch names the prefixes that cause most of the load among any number of others.
func TestSketchFindsTheHeavyAmongMany(t *testing.T) {
	where := placement.New(1)
	var m Meter
	rng := rand.New(rand.NewPCG(1, 2))
	run(&m, where, 0, 20*time.Second, []float64{0.5}, func(int) []byte {
		switch n := rng.IntN(10); {
		case n < 3:
			return []byte("/hot/one/k")
		case n < 5:
			return []byte("/hot/two/k")
		}
		return fmt.Appendf(nil, "flat-%d", rng.IntN(1_000_000))
	})
	hot := m.Snapshot(where, 2).Hot[0]
	require.Len(t, hot, 2)
	require.Equal(t, "/hot/one/", hot[0].Prefix)
	require.InDelta(t, 0.15, hot[0].Load, 0.03)
	require.Equal(t, "/hot/two/", hot[1].Prefix)
	require.InDelta(t, 0.1, hot[1].Load, 0.03)
}

func TestSampleAllocatesNothing(t *testing.T) {
	where := placement.New(4)
	var m Meter
	key := []byte("/registry/pods/0")
	for i := range 100 { // the names' buffers
		key[len(key)-1], key[11] = byte(i), byte(i)
		sample(&m, where, key)
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n++
		key[11] = byte(n)
		sample(&m, where, key)
		m.Worked(0, 1)
	}))
}

// BenchmarkSample is one command of an entry that is sampled: of the same directory, or of keys
// that all differ.
func BenchmarkSample(b *testing.B) {
	for name, vary := range map[string]byte{"directory": 0, "flat": 1} {
		b.Run(name, func(b *testing.B) {
			where := placement.New(4)
			var m Meter
			key := []byte("registry-pods-0000")
			if vary == 0 {
				key = []byte("/registry/pods/000")
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key[len(key)-1], key[len(key)-2] = byte(i), byte(i>>8)
				sample(&m, where, key)
			}
		})
	}
}
