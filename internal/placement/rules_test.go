package placement

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	genRuleKey = rapid.SampledFrom([]string{"/", "a", "a/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/a", "/a/b/a/", "//", "b/", "\xff/", "0"})
	genRules   = rapid.Custom(func(t *rapid.T) []Rule {
		var list []Rule
		for _, k := range rapid.SliceOfNDistinct(genRuleKey, 0, 5, rapid.ID).Draw(t, "keys") {
			list = append(list, Rule{k, rapid.IntRange(0, Slots-1).Draw(t, "slot")})
		}
		return list
	})
	genAnyKey = rapid.OneOf(
		rapid.SliceOfN(rapid.SampledFrom([]byte{0, '/', '0', 'a', 'b', 0xff}), 0, 7),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", ""}), 0, 4), func(s []string) []byte { return []byte("/" + strings.Join(s, "/")) }),
	)
)

func TestTheLongestRuleCounts(t *testing.T) {
	m := New(4).WithRules([]Rule{{"/a/", 1}, {"/a/b/c/", 2}, {"/a/b/c/k", 3}, {"/a", 4}, {"flat", 5}, {"q/", 6}})
	for key, want := range map[string]int{
		"/a/x":        1,
		"/a/":         1,
		"/a/b/c":      1,
		"/a/b/c/":     2,
		"/a/b/c/d/e":  2,
		"/a/b/c/k":    3,
		"/a/b/c/k/":   2, // a rule without a slash at its end is for one key
		"/a/b/c/kk":   2,
		"/a":          4,
		"/ab":         HashSlot([]byte("/ab")),
		"flat":        5,
		"flat/x":      HashSlot([]byte("flat/x")),
		"q/r/s/t":     6,
		"q":           HashSlot([]byte("q")),
		"/registry/x": HashSlot([]byte("/registry/x")),
	} {
		require.Equal(t, want, m.Slot([]byte(key)), "slot of %q", key)
	}
	m = m.WithRules([]Rule{{"/", 9}})
	require.Equal(t, 9, m.Slot([]byte("/anything")))
	require.Equal(t, HashSlot([]byte("any")), m.Slot([]byte("any")))
	require.Nil(t, m.WithRules(nil).rules)
}

func TestRangeWithRules(t *testing.T) {
	m := New(1024 / 16) // 16 slots to a partition
	slot := func(p int) int { return p * 16 }
	m = m.WithRules([]Rule{{"/a/", slot(1)}, {"/a/b/c/", slot(2)}, {"/k/l/m", slot(3)}})
	kl := m.Range([]byte("/k/l/x/"), []byte("/k/l/x0"))
	require.Equal(t, 1, kl.Len())
	for _, r := range []struct {
		key, end string
		want     Set
	}{
		{"/a/", "/a0", Of(1) | Of(2)},
		{"/a/x/", "/a/x0", Of(1)},
		{"/a/b/c/", "/a/b/c0", Of(2)},
		{"/a/b/c/d", "/a/b/d", Of(1) | Of(2)}, // begins inside the deeper rule
		{"/a/b/d", "/a/b/e", Of(1)},
		{"/k/l/", "/k/l0", kl | Of(3)},
		{"/k/l/n", "/k/l0", kl},
		{"/k/l/m", "", Of(3)},
		{"/", "0", m.All()},
	} {
		require.Equal(t, r.want, m.Range([]byte(r.key), []byte(r.end)), "[%q, %q)", r.key, r.end)
	}
}

// slotNaively is the rule as it is told: of those that match, the longest.
func slotNaively(list []Rule, key []byte) int {
	slot, length := HashSlot(key), -1
	for _, r := range list {
		if (string(key) == r.Key || r.subtree() && strings.HasPrefix(string(key), r.Key)) && len(r.Key) > length {
			slot, length = r.Slot, len(r.Key)
		}
	}
	return slot
}

func TestRulesAreFoundAsTheyAreTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := genRules.Draw(t, "rules")
		m := New(8).WithRules(list)
		key := genAnyKey.Draw(t, "key")
		require.Equal(t, slotNaively(list, key), m.Slot(key), "slot of %q", key)
	})
}

// Changes one after the other come to the same as all rules at once.
func TestChangedRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, want := New(8), map[string]int{}
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			add := genRules.Draw(t, "add")
			remove := rapid.SliceOfN(genRuleKey, 0, 3).Draw(t, "remove")
			m = m.Changed(add, remove)
			for _, r := range add {
				want[r.Key] = r.Slot
			}
			for _, k := range remove {
				delete(want, k)
			}
		}
		var list []Rule
		for _, k := range slices.Sorted(maps.Keys(want)) {
			list = append(list, Rule{k, want[k]})
		}
		require.Equal(t, list, m.Rules())
		require.True(t, m.Equal(New(8).WithRules(list)))
		key := genRuleKey.Draw(t, "key")
		slot, ok := m.RuleFor(key)
		at, there := want[key]
		require.Equal(t, there, ok)
		require.Equal(t, at, slot)
		slot, ok = m.RuleUnder(key)
		i := slices.IndexFunc(list, func(r Rule) bool { return strings.HasPrefix(r.Key, key) })
		require.Equal(t, i >= 0, ok)
		if ok {
			require.Equal(t, list[i].Slot, slot)
		}
		if slot, ok = m.RuleOver(key); ok {
			require.Equal(t, slotNaively(list, []byte(key)), slot)
		}
	})
}

// Invariant 4.
func TestDifferenceHoldsAllThatMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := New(8).WithRules(genRules.Draw(t, "from"))
		to := from.WithRules(genRules.Draw(t, "to"))
		spans := Difference(from, to)
		for i := 1; i < len(spans); i++ {
			require.LessOrEqual(t, string(spans[i-1].End), string(spans[i].Key))
		}
		key := genAnyKey.Draw(t, "key")
		if from.Partition(key) == to.Partition(key) {
			return
		}
		for _, s := range spans {
			if bytes.Compare(key, s.Key) >= 0 && bytes.Compare(key, s.End) < 0 {
				return
			}
		}
		require.Fail(t, "it moves, but lies in no span", "%q, %q", key, spans)
	})
}

func TestRulesCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(rapid.IntRange(1, 64).Draw(t, "partitions")).WithRules(genRules.Draw(t, "rules"))
		back, err := Decode(m.Encode())
		require.NoError(t, err)
		require.Equal(t, m.Rules(), back.Rules())
		require.True(t, m.Equal(back))
	})
}

// Keys that no rule is for pay next to nothing, however many rules there are.
func BenchmarkPartitionWithRules(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		m := New(4).WithRules(scopes(n))
		for name, key := range map[string]string{
			"none": "/registry/pods/default/web-7d4b9c-x2x4z", "flat": "/key-123456", "under": "/scope-7/a/b/c",
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				k := []byte(key)
				b.ReportAllocs()
				for b.Loop() {
					m.Partition(k)
				}
			})
		}
	}
}

func scopes(n int) (list []Rule) {
	for i := range n {
		list = append(list, Rule{fmt.Sprintf("/scope-%d/", i), i % Slots})
	}
	return list
}

// BenchmarkChanged is what a registered extension costs: its rules, and what has to
// move for them.
func BenchmarkChanged(b *testing.B) {
	for _, n := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := New(4).WithRules(scopes(n))
			b.ReportAllocs()
			for b.Loop() {
				m.Towards(m.Changed([]Rule{{"/new/", 1}, {"/em/new/", 1}}, nil))
			}
		})
	}
}
