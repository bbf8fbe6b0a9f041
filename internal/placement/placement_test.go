package placement

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPrefixIsTheDirectoryTwoLevelsDeep(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/pods/default/web": "/registry/pods/",
		"/registry/pods/":            "/registry/pods/",
		"/registry/pods":             "/registry/",
		"/service/db":                "/service/",
		"/service/":                  "/service/",
		"/x":                         "/x",
		"/":                          "/",
		"":                           "",
		"foo":                        "foo",
		"foo/bar":                    "foo/",
		"foo/bar/baz/q":              "foo/bar/",
		"//x":                        "//",
		"//x/y":                      "//x/",
		"///":                        "///",
	} {
		require.Equal(t, want, string(Prefix([]byte(key))), "prefix of %q", key)
	}
}

// The slots of keys are part of the data format: another hash would look for
// every key of an existing cluster in the wrong partition.
func TestSlotsNeverChange(t *testing.T) {
	m := New(4)
	for key, want := range map[string]int{
		"/registry/pods/default/web": 271,
		"/service/db":                699,
		"foo":                        575,
		"":                           409,
	} {
		require.Equal(t, want, m.Slot([]byte(key)), "slot of %q", key)
	}
}

func TestSlotsAreDealtOutEvenly(t *testing.T) {
	for partitions := 1; partitions <= 16; partitions++ {
		m := New(partitions)
		for p := 0; p < partitions; p++ {
			require.InDelta(t, Slots/partitions, m.SlotsOf(p), 1, "partition %d of %d", p, partitions)
		}
	}
}

func TestFlatKeysSpread(t *testing.T) {
	m := New(4)
	var per [4]int
	for i := 0; i < 10_000; i++ {
		per[m.Partition(fmt.Appendf(nil, "key-%d", i))]++
	}
	for p, n := range per {
		require.Greater(t, n, 2_000, "keys in partition %d", p)
	}
}

func TestRangeInsideOneDirectoryTouchesOnePartition(t *testing.T) {
	m := New(4)
	for _, r := range []struct{ key, end string }{
		{"/registry/pods/", "/registry/pods0"},
		{"/registry/pods/default/", "/registry/pods/default0"},
		{"/registry/pods/default/a", "/registry/pods/default/b"},
		{"/registry/pods/a\x00", "/registry/pods0"}, // as Kubernetes continues a list
		{"/a/b", "/a/b\x00"},
		{"foo", ""},
		{"foo", "bar"}, // empty
	} {
		require.Equal(t, Of(m.Partition([]byte(r.key))), m.Range([]byte(r.key), []byte(r.end)), "[%q, %q)", r.key, r.end)
	}
	for _, r := range []struct{ key, end string }{
		{"/registry/", "/registry0"}, // directories below it lie anywhere
		{"/registry/pods/", "\x00"},
		{"\x00", "\x00"},
		{"", "\x00"},
		{"a", "b"},
		{"/registry/pods/", "/registry/pods1"},
	} {
		require.Equal(t, m.All(), m.Range([]byte(r.key), []byte(r.end)), "[%q, %q)", r.key, r.end)
	}
}

// Invariant 3: no key of a range lies in a partition that Range left out.
func TestRangeNamesEveryPartitionOfItsKeys(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, '/', '0', 'a', 'b', 0xff}), 0, 7)
	rapid.Check(t, func(t *rapid.T) {
		m := New(rapid.IntRange(1, MaxPartitions).Draw(t, "partitions")).WithRules(genRules.Draw(t, "rules"))
		from, end := key.Draw(t, "key"), key.Draw(t, "end")
		set := m.Range(from, end)
		require.NotZero(t, set)
		require.Zero(t, set&^m.All(), "a partition that doesn't exist")
		// Keys near the bounds are the ones that a wrong shortcut misses.
		k := append(bytes.Clone(from), key.Draw(t, "more")...)
		if rapid.Bool().Draw(t, "anywhere") {
			k = key.Draw(t, "inside")
		}
		inside := bytes.Compare(k, from) >= 0 && bytes.Compare(k, end) < 0
		if len(end) == 0 {
			inside = bytes.Equal(k, from)
		} else if bytes.Equal(end, []byte{0}) {
			inside = bytes.Compare(k, from) >= 0
		}
		if inside {
			require.True(t, set.Has(m.Partition(k)), "%q of [%q, %q) lies in %d, not in %v", k, from, end, m.Partition(k), set)
		}
	})
}

func TestSet(t *testing.T) {
	s := Of(0) | Of(3) | Of(63)
	require.True(t, s.Has(3))
	require.False(t, s.Has(2))
	require.Equal(t, 3, s.Len())
	require.Equal(t, 0, s.First())
	require.Equal(t, "{0 3 63}", s.String())
	for range s.Each() {
		break
	}
	require.Equal(t, ^Set(0), New(MaxPartitions).All())
	require.Equal(t, Set(1), New(1).All())
}

func TestCodec(t *testing.T) {
	for _, partitions := range []int{1, 2, 5, 64} {
		m := New(partitions)
		for slot, p := range m.Table() {
			require.EqualValues(t, slot*partitions/Slots, p)
		}
		back, err := Decode(m.Encode())
		require.NoError(t, err)
		require.True(t, m.Equal(back))
		m = m.WithRules([]Rule{{"/q", 7}, {"/ctr/", 1023}})
		back, err = Decode(m.Encode())
		require.NoError(t, err)
		require.True(t, m.Equal(back))
	}
	good := New(3).Encode()
	for what, bad := range map[string][]byte{
		"no bytes":    nil,
		"version 9":   append([]byte{9}, good[1:]...),
		"want 1026":   good[:100],
		"want 1 to":   append([]byte{version, 0}, good[2:]...),
		"slot 1023 l": append(bytes.Clone(good[:len(good)-1]), 3),
		"0 rules":     append(ruled(), 0),
		"9 rules":     append(ruled(), 9, 1, 1, 'a'),
		"too early":   append(ruled(), 1, 0x80),
		"slot 1024":   append(ruled(), 1, 0x80, 8, 1, 'a'),
		"of 5 bytes":  append(ruled(), 1, 1, 5, 'a'),
		"of 0 bytes":  append(ruled(), 1, 1, 0),
		"out of orde": append(ruled(), 2, 1, 1, 'a', 1, 1, 'a'),
		"too many":    append(ruled(), 1, 1, 1, 'a', 1),
		"shortest":    append(ruled(), 1, 0x81, 0, 1, 'a'),
	} {
		_, err := Decode(bad)
		require.ErrorContains(t, err, what)
	}
}

// ruled is the beginning of a map with rules, up to their number.
func ruled() []byte { return append([]byte{versionRules}, New(3).Encode()[1:]...) }

func FuzzDecode(f *testing.F) {
	f.Add(New(5).WithRules([]Rule{{"/a/", 3}, {"/a/b", 900}}).Encode())
	f.Add([]byte(nil))
	f.Add(New(1).Encode())
	f.Add(New(7).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		require.Equal(t, b, m.Encode())
		require.Less(t, m.Partition(b), m.Partitions())
	})
}

func BenchmarkPartition(b *testing.B) {
	m, key := New(4), []byte("/registry/pods/default/web-7d4b9c-x2x4z")
	b.ReportAllocs()
	for b.Loop() {
		m.Partition(key)
	}
}

// A spot is what the other methods say, with rules and during a transit, too.
func TestSpot(t *testing.T) {
	from := New(4).WithRules([]Rule{{"/a/", 3}, {"b", 900}})
	moved := from.Assigned([]Assignment{{3, 2}, {HashSlot([]byte("c")), 1}})
	for _, m := range []*Map{New(1), New(4), from, moved, from.Towards(moved), from.Towards(moved).Transit().Advance([]byte("b"))} {
		for _, key := range []string{"/a/x/y", "/z/x/y", "a", "b", "c", "d"} {
			require.Equal(t, Spot{
				Prefix: Prefix([]byte(key)), Hash: xxhash.Sum64(Prefix([]byte(key))),
				Slot: m.Slot([]byte(key)), Partition: m.Partition([]byte(key)),
			}, m.Spot([]byte(key)), key)
		}
	}
}
