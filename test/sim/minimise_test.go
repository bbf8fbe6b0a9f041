package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is left fails, and each item of it is needed, whatever fails beside the whole.
func TestLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.IntRange(1, 1000), 0, 40, rapid.ID[int]).Draw(t, "items")
		slices.Sort(all)
		needed := slices.DeleteFunc(slices.Clone(all), func(int) bool { return rapid.IntRange(0, 5).Draw(t, "needed") > 0 })
		salt, oneIn := rapid.Uint64().Draw(t, "salt"), rapid.Uint64Range(2, 50).Draw(t, "one in")
		fails := func(items []int) bool {
			if len(items) == len(all) {
				return true
			}
			h := fnv.New64a()
			fmt.Fprint(h, salt, items)
			lacks := slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(items, n) })
			return !lacks || h.Sum64()%oneIn == 0 // by chance, too, as runs do
		}
		left := least(all, fails)
		require.True(t, fails(left))
		require.True(t, slices.IsSorted(left))
		for i := range left {
			require.False(t, fails(slices.Delete(slices.Clone(left), i, i+1)), "%v without its item %d fails, too", left, i)
		}
	})
}

// busy are runs with troubles of all sources.
func busy() []Options {
	return []Options{
		{Seed: 21, Servers: 3, Partitions: 2, Members: true, Balance: true},
		{Seed: 23, Servers: 3, Partitions: 2, Resize: true, Checks: true, Users: true},
		forced(Options{Seed: 25, Servers: 3, Partitions: 2}),
	}
}

// A run is repeated as it was if no trouble is left out.
func TestARunIsRepeated(t *testing.T) {
	sources := map[string]bool{}
	for _, o := range busy() {
		whole := Run(o)
		require.NoError(t, whole.Failure)
		again := o
		again.Only, again.whole = numbers(whole.Troubles), whole.planned
		repeated := Run(again)
		require.Equal(t, whole.Trace, repeated.Trace, "seed %d", o.Seed)
		require.Equal(t, whole.Troubles, repeated.Troubles)
		for _, tr := range whole.Troubles {
			sources[tr.Source] = true
		}
	}
	require.GreaterOrEqual(t, len(sources), 4, "%v", sources)
}

// Troubles that are left out change neither when the others happen, nor what is drawn for them; those before
// them are the same in all.
func TestTroublesAreLeftOut(t *testing.T) {
	for _, o := range busy() {
		whole := Run(o)
		first := len(whole.Troubles) / 3
		rest := slices.DeleteFunc(numbers(whole.Troubles), func(n int) bool { return n > first && n%2 == 0 })
		o.Only, o.whole = rest, whole.planned
		r := Run(o)
		require.NoError(t, r.Failure, "a sound cluster has failed")
		require.NotEmpty(t, r.Troubles)
		for _, tr := range r.Troubles {
			require.Contains(t, o.Only, tr.N)
			was := whole.Troubles[tr.N-1]
			require.Equal(t, was.At, tr.At)
			require.Equal(t, was.before, tr.before)
			if tr.Source == "trouble" {
				require.Equal(t, was.Did[0], tr.Did[0])
			}
			if tr.N <= first {
				require.Equal(t, was.Did, tr.Did)
			}
		}
		require.Equal(t, r.Trace, Run(o).Trace, "seed %d with some troubles doesn't repeat itself", o.Seed)
	}
}

// A failure is found again with fewer troubles, by what an engineer is told to run.
func TestAFailureIsMinimised(t *testing.T) {
	o := Options{Mutation: Mutation{Name: "flush-apart", FlushApart: true}}
	whole := Run(o)
	for ; whole.Failure == nil || whole.Check == "liveness" || len(whole.Troubles) < 5; whole = Run(o) { // those take long
		require.Less(t, o.Seed, uint64(300), "nothing fails")
		o.Seed++
	}
	const most = 20
	m := minimise(o, whole, most)
	require.LessOrEqual(t, m.tried, most)
	require.Less(t, len(m.report.Troubles), len(whole.Troubles))
	require.NotNil(t, m.Only, "no trouble could be left out of seed %d", o.Seed)
	only, err := parseOnly(formatOnly(m.Only))
	require.NoError(t, err)
	o.Only, o.Length = only, m.Length
	byHand := Run(o)
	require.Equal(t, whole.Check, byHand.Check)
	require.Equal(t, m.report.Trace, byHand.Trace)
	require.Contains(t, m.describe(" -mutation=flush-apart"), fmt.Sprintf("-seed=%d -runs=1 -length=%v -only=%s -mutation=flush-apart", o.Seed, m.Length, formatOnly(m.Only)))
}

func TestOnlyAsAFlag(t *testing.T) {
	for _, only := range [][]int{{}, {3}, {3, 7, 12}} {
		parsed, err := parseOnly(formatOnly(only))
		require.NoError(t, err)
		require.Equal(t, only, parsed)
	}
	parsed, err := parseOnly("")
	require.NoError(t, err)
	require.Nil(t, parsed)
	_, err = parseOnly("3,x")
	require.ErrorContains(t, err, "-only")
}
