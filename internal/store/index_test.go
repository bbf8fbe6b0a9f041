//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes ten times as long.

package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

func keyed(name string) *entry {
	e := &entry{}
	e.set(kvwire.Tombstone([]byte(name)))
	return e
}

func name(i int) string { return fmt.Sprintf("key-%05d", i) }

// Enough keys for several segments and leaves, put in and taken out in whatever
// order: both indexes hold what a map does.
func TestIndexesHoldWhatAMapDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 4000
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		hashed, order, want := newTable(), ordered{}, map[string]*entry{}
		for phase := range 3 {
			likely := rapid.IntRange(1, 9).Draw(t, "puts of ten")
			ascending := rapid.Bool().Draw(t, "ascending")
			for i := range keys {
				if !ascending {
					i = random.IntN(keys)
				}
				e := want[name(i)]
				switch put := random.IntN(10) < likely; {
				case put && e == nil:
					e = keyed(name(i))
					want[name(i)] = e
					hashed.add(e)
					order.add(e)
				case !put && e != nil:
					delete(want, name(i))
					hashed.remove(e)
					order.remove(e)
				}
			}
			for i := range keys {
				require.True(t, want[name(i)] == hashed.get([]byte(name(i))), "phase %d", phase)
			}
			checkOrder(t, &order, want)
		}
	})
}

func checkOrder(t *rapid.T, o *ordered, want map[string]*entry) {
	names := make([]string, 0, len(want))
	for n := range want {
		names = append(names, n)
	}
	slices.Sort(names)
	require.Equal(t, len(names), o.len())
	for _, l := range o.leaves {
		require.Len(t, l.slots, len(l.entries))
		for i, e := range l.entries {
			require.EqualValues(t, placement.HashSlot(e.key()), l.slots[i])
		}
	}
	for range 20 {
		from := name(rapid.IntRange(-1, 4001).Draw(t, "from"))
		end := []byte(name(rapid.IntRange(-1, 4001).Draw(t, "end")))
		to, _ := slices.BinarySearch(names, string(end))
		if rapid.IntRange(0, 4).Draw(t, "without end") == 0 {
			end, to = []byte{0}, len(names)
		}
		at, _ := slices.BinarySearch(names, from)
		expect := names[min(at, to):to]
		p, q := o.seek([]byte(from)), o.below(end)
		require.Equal(t, len(expect), o.count(p, q))
		var got []string
		o.ascend(p, q, func(e *entry) bool {
			require.True(t, want[view(e.key())] == e)
			got = append(got, string(e.key()))
			return true
		})
		require.Equal(t, strings.Join(expect, " "), strings.Join(got, " "))
		for i := 0; p.less(q); p = o.next(p) {
			require.Equal(t, expect[i], string(o.at(p).key()))
			i++
		}
	}
}

// What the indexes take beside the entries is what DESIGN.md says.
func TestIndexesAreFull(t *testing.T) {
	const keys = 100_000
	for _, random := range []bool{false, true} {
		hashed, order := newTable(), ordered{}
		for _, i := range rand.Perm(keys) {
			if !random {
				i = order.len()
			}
			e := keyed(name(i))
			hashed.add(e)
			order.add(e)
		}
		places := 0
		for i := range hashed.segments {
			places += len(hashed.segments[i].hashes)
		}
		require.Less(t, float64(places)/keys, 1.3)
		places = 0
		for i := range order.leaves {
			places += cap(order.leaves[i].entries)
		}
		if random {
			require.Less(t, float64(places)/keys, 1.25)
		} else {
			require.Less(t, float64(places)/keys, 1.01)
		}
	}
}
