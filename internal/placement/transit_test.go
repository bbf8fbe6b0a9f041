package placement

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// genTransit draws a map in transit, and how far it has come.
var genTransit = rapid.Custom(func(t *rapid.T) *Map {
	from := New(8).WithRules(genRules.Draw(t, "from"))
	m := from.Towards(from.WithRules(genRules.Draw(t, "to")))
	if tr := m.Transit(); tr != nil && rapid.Bool().Draw(t, "under way") {
		m = tr.Advance(genAnyKey.Draw(t, "cursor"))
	}
	return m
})

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

// Every key that has to move is ahead until the cursor has passed it, and in one of
// two pieces that meet.
func TestWhatIsAhead(t *testing.T) {
	in := func(spans []Span, key []byte) (n int) {
		for _, s := range spans {
			if bytes.Compare(key, s.Key) >= 0 && bytes.Compare(key, s.End) < 0 {
				n++
			}
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		m, key, bound := genTransit.Draw(t, "map"), genAnyKey.Draw(t, "key"), genAnyKey.Draw(t, "bound")
		tr := m.Transit()
		if tr == nil {
			return
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

func TestTransitCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genTransit.Draw(t, "map")
		back, err := Decode(m.Encode())
		require.NoError(t, err)
		require.True(t, m.Equal(back))
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
}

// Nothing has to move for a rule that says what is so.
func TestATransitOfNoKeys(t *testing.T) {
	m := New(4)
	to := m.WithRules([]Rule{{"/a/b/", m.HashSlot([]byte("/a/b/"))}})
	require.Same(t, to, m.Towards(to), "a rule that says what is so without it")
	under := to.WithRules([]Rule{{"/a/b/", to.HashSlot([]byte("/a/b/"))}, {"/a/b/c/", to.HashSlot([]byte("/a/b/"))}})
	require.Same(t, under, to.Towards(under), "one that says what the rule above it does")
	other := to.WithRules([]Rule{{"/a/b/", m.HashSlot([]byte("/a/b/")) ^ 1}})
	require.Same(t, other, to.Towards(other), "another slot of the same partition")
	away := m.WithRules([]Rule{{"/a/b/", m.HashSlot([]byte("/a/b/")) ^ (Slots / 2)}})
	require.Panics(t, func() { m.Towards(away).Transit().Advance(nil).Towards(m) })
}
