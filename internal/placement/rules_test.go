package placement

import (
	"bytes"
	"fmt"
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
		"/ab":         m.HashSlot([]byte("/ab")),
		"flat":        5,
		"flat/x":      m.HashSlot([]byte("flat/x")),
		"q/r/s/t":     6,
		"q":           m.HashSlot([]byte("q")),
		"/registry/x": m.HashSlot([]byte("/registry/x")),
	} {
		require.Equal(t, want, m.Slot([]byte(key)), "slot of %q", key)
	}
	m = m.WithRules([]Rule{{"/", 9}})
	require.Equal(t, 9, m.Slot([]byte("/anything")))
	require.Equal(t, m.HashSlot([]byte("any")), m.Slot([]byte("any")))
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
	slot, length := New(1).HashSlot(key), -1
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
		require.Equal(t, m, back)
		require.True(t, m.Equal(back))
	})
}

// With 100 rules, keys that none of them is for pay next to nothing.
func BenchmarkPartitionWithRules(b *testing.B) {
	var list []Rule
	for i := range 100 {
		list = append(list, Rule{fmt.Sprintf("/scope-%d/", i), i})
	}
	m := New(4).WithRules(list)
	for name, key := range map[string]string{
		"none": "/registry/pods/default/web-7d4b9c-x2x4z", "flat": "/key-123456", "under": "/scope-7/a/b/c",
	} {
		b.Run(name, func(b *testing.B) {
			k := []byte(key)
			b.ReportAllocs()
			for b.Loop() {
				m.Partition(k)
			}
		})
	}
}
