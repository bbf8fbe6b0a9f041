package placement

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// genTransit draws a map in transit, and how far it has come.
var genTransit = rapid.Custom(func(t *rapid.T) *Map {
	from := New(8).Assigned(genAssignments.Draw(t, "from slots")).WithRules(genRules.Draw(t, "from"))
	to := from.Assigned(genAssignments.Draw(t, "to slots")).WithRules(genRules.Draw(t, "to"))
	for _, key := range rapid.SliceOfN(genRuleKey, 0, 2).Draw(t, "pins") {
		if pinned, err := to.Pin(key, rapid.IntRange(0, 7).Draw(t, "at"), unasked); err == nil {
			to = pinned
		}
	}
	m := from.Towards(to)
	if rapid.Bool().Draw(t, "apart") {
		m = from.TowardsApart(to)
	}
	if tr := m.Transit(); tr != nil && rapid.Bool().Draw(t, "under way") {
		m = tr.Advance(genAnyKey.Draw(t, "cursor"))
	}
	return m
})

// genAssignments are mostly none, or of many slots.
var genAssignments = rapid.Custom(func(t *rapid.T) (list []Assignment) {
	if rapid.Bool().Draw(t, "none") {
		return nil
	}
	seed := rapid.Uint64().Draw(t, "seed")
	rng := rand.New(rand.NewPCG(seed, 0))
	for range rapid.SampledFrom([]int{1, 30, 1000}).Draw(t, "slots") {
		list = append(list, Assignment{rng.IntN(Slots), rng.IntN(8)})
	}
	return list
})

func unasked(string) bool { return false }

// Invariant 4.
func TestTheCursorSaysWhichMapCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, key := genTransit.Draw(t, "map"), genAnyKey.Draw(t, "key")
		tr := m.Transit()
		if tr == nil {
			require.Same(t, m, m.Settled())
			return
		}
		require.Same(t, tr.To, m.Settled())
		want := tr.From
		if bytes.Compare(key, tr.Cursor) < 0 {
			want = tr.To
		}
		require.Equal(t, want.Partition(key), m.Partition(key))
		require.Equal(t, want.Slot(key), m.Slot(key))
		require.Equal(t, tr.To.Rules(), m.Rules())
		require.Equal(t, tr.To.Table(), m.Table())
	})
}

// Invariant 4: with slots, too, a key that moves lies in a span, in which its slot isn't still.
func TestStillSlotsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := genTransit.Draw(t, "map").Transit()
		key := genAnyKey.Draw(t, "key")
		if tr == nil || bytes.Compare(key, tr.Cursor) < 0 {
			return
		}
		moves := tr.From.Partition(key) != tr.To.Partition(key)
		spans, found := tr.Ahead(nil), false
		for i, s := range spans {
			require.True(t, i == 0 || bytes.Compare(spans[i-1].End, s.Key) <= 0 && !spans[i-1].open(), "%v", spans)
			if bytes.Compare(key, s.Key) < 0 || !s.open() && bytes.Compare(key, s.End) >= 0 {
				continue
			}
			found = true
			require.False(t, moves && s.Still != nil && s.Still[HashSlot(key)], "%q moves", key)
			if !moves && s.Still != nil && tr.From.slots == tr.To.slots {
				require.Fail(t, "slots are still where none differ")
			}
		}
		require.True(t, found || !moves, "%q moves, but lies in no span", key)
	})
}

// Invariant 3, in transit.
func TestRangesInTransit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genTransit.Draw(t, "map")
		key, end, in := genAnyKey.Draw(t, "key"), genAnyKey.Draw(t, "end"), genAnyKey.Draw(t, "in")
		set, wide := m.Range(key, end), m.Wide(key, end)
		require.NotZero(t, set)
		require.Zero(t, set&^wide, "now at %v, all the time in %v", set, wide)
		all := len(end) == 1 && end[0] == 0
		if bytes.Equal(in, key) || bytes.Compare(in, key) >= 0 && (all || bytes.Compare(in, end) < 0) {
			require.True(t, set.Has(m.Partition(in)), "%q of [%q, %q) is in %d, not in %v", in, key, end, m.Partition(in), set)
		}
		if tr := m.Transit(); tr == nil {
			require.Equal(t, set, wide)
		} else {
			require.Equal(t, wide, tr.Advance(in).Wide(key, end))
		}
	})
}

// Invariant 7.
func TestOthersKnowNoCursor(t *testing.T) {
	apart := 0
	rapid.Check(t, func(t *rapid.T) {
		m := genTransit.Draw(t, "map")
		tr := m.Transit()
		if tr == nil || !tr.Apart {
			return
		}
		if tr.Parts() != m.All() {
			apart++
		}
		key, end := genAnyKey.Draw(t, "key"), genAnyKey.Draw(t, "end")
		if tr.From.Partition(key) != tr.To.Partition(key) {
			require.Zero(t, (Of(tr.From.Partition(key))|Of(tr.To.Partition(key)))&^tr.Parts(), "%q moves", key)
		}
		now, later := m.Range(key, end), tr.Advance(genAnyKey.Draw(t, "later")).Range(key, end)
		if now != later {
			require.Zero(t, (now|later)&^tr.Parts(), "[%q, %q) is in %v, and in %v with another cursor", key, end, now, later)
		}
		together := tr.Together()
		require.False(t, together.Transit().Apart)
		require.Equal(t, tr.Cursor, together.Transit().Cursor)
		require.Equal(t, m.Partition(key), together.Partition(key))
	})
	require.Positive(t, apart)
	// Each of the two parts of this range is known to lie in one partition, and the whole isn't.
	m := New(8)
	key, middle, end := []byte("/a/b/x"), []byte("/a/b0"), []byte("/a/b0\x00")
	from, to := m.Partition(key), m.Partition(middle)
	require.Equal(t, Of(from)|Of(to), m.Range(key, middle)|m.Range(middle, end))
	others := m.All() &^ (Of(from) | Of(to))
	tr := m.TowardsApart(m.Assigned([]Assignment{{slotIn(m, others.First()), (others &^ Of(others.First())).First()}})).Transit()
	require.Zero(t, tr.Parts()&^others)
	require.Equal(t, tr.Advance(nil).Range(key, end), tr.Advance(middle).Range(key, end))
}

// Every key that has to move is ahead until the cursor has passed it, and in one of
// two pieces that meet.
func TestWhatIsAhead(t *testing.T) {
	in := func(spans []Span, key []byte) (n int) {
		for _, s := range spans {
			if bytes.Compare(key, s.Key) >= 0 && (s.open() || bytes.Compare(key, s.End) < 0) {
				n++
			}
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		m, key, bound := genTransit.Draw(t, "map"), genAnyKey.Draw(t, "key"), genAnyKey.Draw(t, "bound")
		tr := m.Transit()
		if tr == nil || len(key) == 0 {
			return // no key is empty
		}
		moves := tr.From.Partition(key) != tr.To.Partition(key)
		require.LessOrEqual(t, in(tr.Ahead(nil), key), 1)
		if moves && bytes.Compare(key, tr.Cursor) >= 0 {
			require.Equal(t, 1, in(tr.Ahead(nil), key))
		}
		if bytes.Compare(bound, tr.Cursor) < 0 || bound == nil {
			return
		}
		next := tr.Advance(bound).Transit()
		require.Equal(t, in(tr.Ahead(nil), key), in(tr.Ahead(bound), key)+in(next.Ahead(nil), key), "%q, bound %q", key, bound)
		if bytes.Compare(key, bound) >= 0 {
			require.Zero(t, in(tr.Ahead(bound), key))
		}
	})
}

func b4(m *Map) byte { return m.Encode()[0] }

// A walk by runs finds each key where the map says that it is.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genTransit.Draw(t, "map").Settled()
		keys := rapid.SliceOfN(genAnyKey, 1, 30).Draw(t, "keys")
		slices.SortFunc(keys, bytes.Compare)
		for i, key := range keys {
			p, end := m.Run(key)
			require.Equal(t, m.Partition(key), p)
			require.True(t, end == nil || bytes.Compare(key, end) < 0, "%q to %q", key, end)
			for _, k := range keys[i:] {
				if end != nil && bytes.Compare(k, end) < 0 {
					require.Equal(t, p, m.Partition(k), "%q is in the run of %q to %q", k, key, end)
				}
			}
		}
	})
	m := New(4).WithRules([]Rule{{"/a/b/k", 0}, {"/r/", 1}})
	for key, want := range map[string]string{
		"/a/b/c": "/a/b/k", "/a/b/k": "", "/a/b/l/m": "/a/b0", "/r/s/t": "/r0", "/a/x": "", "flat": "", "/q/r/": "/q/r0",
	} {
		_, end := m.Run([]byte(key))
		require.Equal(t, want, string(end), "run of %q", key)
	}
}

func TestTransitCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genTransit.Draw(t, "map")
		back, err := Decode(m.Encode())
		require.NoError(t, err)
		require.True(t, m.Equal(back))
		require.Equal(t, m.Early(), b4(m) < versionSlots)
		if tr := m.Transit(); tr != nil {
			require.Equal(t, tr.Apart, back.Transit().Apart)
			require.Equal(t, tr.Apart, b4(m) == versionApart)
			require.Equal(t, tr.Parts(), back.Transit().Parts())
		}
		require.Equal(t, m.Pins(), back.Pins())
		require.Equal(t, m.Transit() == nil, back.Transit() == nil)
		key := genAnyKey.Draw(t, "key")
		require.Equal(t, m.Partition(key), back.Partition(key))
	})
	m := New(2)
	b := m.Towards(m.WithRules([]Rule{{"/a/", 0}, {"/b/", Slots - 1}})).Encode()
	for n := range len(b) {
		_, err := Decode(b[:n])
		require.Error(t, err, "%d bytes", n)
	}
	same := append([]byte{}, b...)
	same = append(same[:len(same)-1], b[size:len(b)-1]...) // from the rules that it goes to
	_, err := Decode(same)
	require.ErrorContains(t, err, "it goes where it comes from")
	pinned, err := m.Pin("/a/", 1, unasked)
	require.NoError(t, err)
	for m, v := range map[*Map]byte{
		pinned: versionSlots, m.Towards(m.Assigned([]Assignment{{0, 1}})): versionSlots, m.Towards(pinned.Assigned([]Assignment{{0, 1}, {1, 1}})): versionSlots,
		m.TowardsApart(pinned): versionApart, m.TowardsApart(m.Assigned([]Assignment{{0, 1}})): versionApart,
	} {
		b := m.Encode()
		require.Equal(t, v, b[0])
		for n := range len(b) {
			_, err := Decode(b[:n])
			require.Error(t, err, "%d bytes", n)
		}
	}
}

// A transit whose steps meet apart is written in a version of its own, and nothing else is.
func TestOnlyTransitsAreApart(t *testing.T) {
	pinned, err := New(2).Pin("/a/", 1, unasked)
	require.NoError(t, err)
	b := pinned.Encode()
	b[0] = versionApart
	_, err = Decode(b)
	require.ErrorContains(t, err, "it is not in its shortest form")
}

// The partitions between which nothing moves don't take part.
func TestWhoTakesPart(t *testing.T) {
	m := New(4)
	slot := slotIn(m, 1)
	for _, c := range []struct {
		to   *Map
		want Set
	}{
		{m.Assigned([]Assignment{{slot, 3}}), Of(1) | Of(3)},
		{m.Assigned([]Assignment{{slot, 3}, {slotIn(m, 0), 1}}), Of(0) | Of(1) | Of(3)},
		{m.WithRules([]Rule{{"/a/b/", slotIn(m, (m.Partition([]byte("/a/b/"))+1)%4)}}), Of(m.Partition([]byte("/a/b/"))) | Of((m.Partition([]byte("/a/b/"))+1)%4)},
		{m.WithRules([]Rule{{"/a/", slot}}), m.All()},
	} {
		require.Equal(t, c.want, m.TowardsApart(c.to).Transit().Parts())
	}
}

func slotIn(m *Map, p int) int { return bytes.IndexByte(m.Table(), byte(p)) }

// Nothing has to move for a rule that says what is so.
func TestATransitOfNoKeys(t *testing.T) {
	m := New(4)
	to := m.WithRules([]Rule{{"/a/b/", HashSlot([]byte("/a/b/"))}})
	require.Same(t, to, m.Towards(to), "a rule that says what is so without it")
	under := to.WithRules([]Rule{{"/a/b/", HashSlot([]byte("/a/b/"))}, {"/a/b/c/", HashSlot([]byte("/a/b/"))}})
	require.Same(t, under, to.Towards(under), "one that says what the rule above it does")
	other := to.WithRules([]Rule{{"/a/b/", HashSlot([]byte("/a/b/")) ^ 1}})
	require.Same(t, other, to.Towards(other), "another slot of the same partition")
	away := m.WithRules([]Rule{{"/a/b/", HashSlot([]byte("/a/b/")) ^ (Slots / 2)}})
	require.Panics(t, func() { m.Towards(away).Transit().Advance(nil).Towards(m) })
}
