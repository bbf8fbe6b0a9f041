package radix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var drawKey = rapid.StringOfN(rapid.RuneFrom([]rune("/ab")), 0, 6, -1)

// state is a tree and the map that it should be equal to.
type state struct {
	tree Tree[int]
	keys map[string]int
}

func (s state) check(t *rapid.T) {
	require.Equal(t, len(s.keys), s.tree.Len())
	require.Equal(t, s.keys, maps.Collect(s.tree.All()))
	if s.tree.root != nil {
		s.tree.root.check(t, true)
	}
}

// check is invariant 2, and that bits are those of the values.
func (n *Node[V]) check(t *rapid.T, root bool) {
	require.True(t, root || n.entry != nil || len(n.edges) > 1)
	for i, e := range n.edges {
		require.Equal(t, e.label[0], e.first)
		require.True(t, i == 0 || n.edges[i-1].first < e.first)
		e.to.check(t, false)
	}
}

func bit(v int) uint64 { return 1 << (v % 8) }

// A tree is the same as a map, and those that it came from stay as they were.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []state{{Marked(bit), map[string]int{}}}
		for i := range rapid.IntRange(0, 25).Draw(t, "changes") {
			last := all[rapid.IntRange(0, len(all)-1).Draw(t, "of")]
			next := state{last.tree, maps.Clone(last.keys)}
			key := drawKey.Draw(t, "key")
			if rapid.Bool().Draw(t, "with") {
				next.tree, next.keys[key] = last.tree.With(key, i), i
			} else {
				next.tree = last.tree.Without(key)
				delete(next.keys, key)
			}
			all = append(all, next)
		}
		for _, s := range all {
			s.check(t)
		}
		s := all[len(all)-1]
		s.checkQuestions(t, drawKey.Draw(t, "question"), drawKey.Draw(t, "until"))
		other := all[rapid.IntRange(0, len(all)-1).Draw(t, "other")]
		require.Equal(t, different(s.keys, other.keys), slices.Collect(Diff(s.tree, other.tree)))
	})
}

func (s state) checkQuestions(t *rapid.T, key, until string) {
	v, ok := s.tree.Get([]byte(key))
	want, there := s.keys[key]
	require.Equal(t, there, ok)
	require.Equal(t, want, v)
	var above, within, below []string
	bits := uint64(0)
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if strings.HasPrefix(key, k) {
			above = append(above, k)
		}
		if strings.HasPrefix(k, key) {
			below = append(below, k)
		}
		if k >= key && k < until {
			within = append(within, k)
			bits |= bit(s.keys[k])
		}
	}
	var found []string
	for k, v := range s.tree.Above([]byte(key)) {
		require.Equal(t, s.keys[k], v)
		found = append(found, k)
	}
	require.Equal(t, above, found)
	found = nil
	for k := range s.tree.Range([]byte(key), []byte(until)) {
		found = append(found, k)
	}
	require.Equal(t, within, found)
	require.Equal(t, bits, s.tree.Bits([]byte(key), []byte(until)))
	last, ok := s.tree.Last()
	require.Equal(t, len(s.keys) > 0, ok)
	if ok {
		require.Equal(t, s.keys[slices.Max(slices.Collect(maps.Keys(s.keys)))], last)
	}
	n := s.tree.Below([]byte(key))
	require.Equal(t, len(below) > 0, n != nil)
	if n != nil {
		require.Equal(t, below, keysUnder(n))
	}
}

func keysUnder[V any](n *Node[V]) (keys []string) {
	if _, ok := n.Value(); ok {
		keys = append(keys, n.entry.key)
	}
	for next := range n.Next() {
		keys = append(keys, keysUnder(next)...)
	}
	return keys
}

func different(a, b map[string]int) (keys []string) {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			keys = append(keys, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// What two trees share isn't looked at.
func TestDiffTakesAsLongAsTheDifference(t *testing.T) {
	var a Tree[int]
	for i := range 10_000 {
		a = a.With(fmt.Sprintf("/e%05d/", i), i)
	}
	b := a.With("/e00500/x", 1).Without("/e09000/")
	require.Equal(t, []string{"/e00500/x", "/e09000/"}, slices.Collect(Diff(a, b)))
	allocs := testing.AllocsPerRun(100, func() {
		for range Diff(a, b) {
		}
	})
	require.Less(t, allocs, 10.0)
}

func many(n int) (t Tree[int]) {
	for i := range n {
		t = t.With(fmt.Sprintf("/app/e%05d/", i), i)
	}
	return t
}

func BenchmarkAbove(b *testing.B) {
	for _, n := range []int{0, 100, 10_000} {
		tree := many(n)
		for name, key := range map[string]string{"elsewhere": "/registry/pods/key-0000777", "beside": "/app/x", "below": "/app/e00050/x"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				k := []byte(key)
				for b.Loop() {
					for range tree.Above(k) {
					}
				}
			})
		}
	}
}

func BenchmarkWith(b *testing.B) {
	tree := many(10_000)
	b.ReportAllocs()
	for b.Loop() {
		tree.With("/app/e05000/x", 1)
	}
}
