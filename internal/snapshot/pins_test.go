package snapshot

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/version"
)

func unasked(string) bool { return false }

// pinned is a map of four partitions with pins.
func pinned(t require.TestingT, asked func(string) bool, pins map[string]int, rules ...placement.Rule) *placement.Map {
	m := placement.New(4).WithRules(rules)
	for _, key := range []string{"/deep/", "/deep/er/", "/last/", "flat"} {
		if to, ok := pins[key]; ok {
			var err error
			m, err = m.Pin(key, to, asked)
			require.NoError(t, err)
		}
	}
	return m
}

func TestPinsSurviveARestore(t *testing.T) {
	pins := map[string]int{"/deep/": 1, "/deep/er/": 0, "/last/": 3, "flat": 2}
	m := pinned(t, unasked, pins)
	m = m.Towards(m.Assigned([]placement.Assignment{{Slot: 5, Partition: 1}})) // of keys that are on their way
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	saveMap(t, file, m)
	for partitions, kept := range map[int][]string{
		1: nil, 2: {"/deep/", "/deep/er/"}, 3: {"/deep/", "/deep/er/", "flat"}, 4: m.Pins(), 16: m.Pins(),
	} {
		c := second(filepath.Join(dir, string(rune('a'+partitions))))
		c.Partitions = partitions
		r, err := Restore(t.Context(), file, c)
		require.NoError(t, err)
		stored := meta(t, c.DataDir)
		placed, err := recovery.Placement(&stored)
		require.NoError(t, err)
		require.Equal(t, kept, placed.Pins(), "%d partitions", partitions)
		for _, key := range kept {
			require.Equal(t, pins[key], placed.Partition([]byte(key)), key)
		}
		var dropped []string
		for _, d := range r.DroppedPins {
			require.Equal(t, pins[d.Key], d.Partition)
			dropped = append(dropped, d.Key)
		}
		require.ElementsMatch(t, m.Pins(), append(dropped, kept...))
		require.True(t, slices.IsSorted(dropped))
		if partitions == 2 {
			require.Equal(t, `The pin "/last/" to partition 3 is dropped: there is no partition 3: there are 0 to 1`, r.DroppedPins[0].String())
		}
		want := version.Level(1)
		if len(kept) > 0 {
			want = levelOfPins // no server that knows no pins reads this map
		}
		require.Equal(t, want, stored.Level)
	}
}

// An extension brings /deep/a and /deep/er/b together with /else/, wherever the deeper pin says.
func TestPinsOfAnExtensionsKeysSurviveARestore(t *testing.T) {
	rules := []placement.Rule{{Key: "/deep/er/b", Slot: 9}, {Key: "/else/", Slot: 9}, {Key: "/deep/c", Slot: 10}}
	asked := func(key string) bool {
		return slices.ContainsFunc(rules, func(r placement.Rule) bool { return r.Key == key })
	}
	old, err := placement.New(4).WithRules(rules).Pin("/deep/er/", 0, asked)
	require.NoError(t, err)
	old, err = old.Pin("/deep/", 3, asked)
	require.NoError(t, err)
	now, dropped := pin(placement.New(5).WithRules(rules), old, asked)
	require.Empty(t, dropped)
	require.Equal(t, old.Pins(), now.Pins())
	for key, p := range map[string]int{"/deep/x": 3, "/deep/c": 3, "/deep/er/x": 0, "/deep/er/b": 0, "/else/x": 0} {
		require.Equal(t, p, now.Partition([]byte(key)), key)
	}
	// An extension that the file's cluster didn't have.
	rules = append(rules, placement.Rule{Key: "/deep/d", Slot: 9})
	now, dropped = pin(placement.New(5).WithRules(rules), old, asked)
	require.Equal(t, []string{"/deep/er/"}, now.Pins())
	require.Len(t, dropped, 1)
	require.Contains(t, dropped[0].Why, "an extension keeps keys")
}

// Each pin of a map is kept if its partition is there.
func TestEveryPinOfAPartitionThatIsThereIsKept(t *testing.T) {
	keys := []string{"/a/", "/a/b/", "/a/b/c", "/a/b/c/", "/b/", "k"}
	rapid.Check(t, func(t *rapid.T) {
		rules := []placement.Rule{{Key: "/a/b/x", Slot: 1}, {Key: "/a/y", Slot: 2}, {Key: "/b/z/", Slot: 1}, {Key: "/a/b/", Slot: 3}}
		rules = rules[rapid.IntRange(0, len(rules)).Draw(t, "rules"):]
		asked := func(key string) bool {
			return slices.ContainsFunc(rules, func(r placement.Rule) bool { return r.Key == key })
		}
		old := placement.New(4).WithRules(rules)
		for _, key := range rapid.SliceOf(rapid.SampledFrom(keys)).Draw(t, "pins") {
			if next, err := old.Pin(key, rapid.IntRange(0, 3).Draw(t, "to"), asked); err == nil {
				old = next
			}
		}
		partitions := rapid.IntRange(2, 6).Draw(t, "partitions")
		now, dropped := pin(placement.New(partitions).WithRules(rules), old, asked)
		for _, d := range dropped {
			require.GreaterOrEqual(t, d.Partition, partitions, d)
		}
		for _, key := range now.Pins() {
			require.Equal(t, old.Partition([]byte(key)), now.Partition([]byte(key)), key)
		}
		require.Len(t, old.Pins(), len(dropped)+len(now.Pins()))
	})
}
