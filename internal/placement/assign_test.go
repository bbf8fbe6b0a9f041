package placement

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The slot of a key goes with all of its keys, and nothing else does.
func TestMoved(t *testing.T) {
	m := New(4).WithRules([]Rule{{"/r/", 9}})
	for _, key := range []string{"/a/b/", "/a/b/c", "flat", "/x", "/r/", "/r/s"} {
		for to := range 4 {
			next, err := m.Moved(key, to)
			require.NoError(t, err, key)
			require.Equal(t, to, next.Partition([]byte(key)), key)
			changed := 0
			for s := range m.slots {
				if m.slots[s] != next.slots[s] {
					changed++
				}
			}
			require.LessOrEqual(t, changed, 1)
			require.Equal(t, m.Rules(), next.Rules())
		}
	}
	_, err := m.Moved("/a/", 0)
	require.ErrorContains(t, err, "the keys below \"/a/\" lie in many slots")
	_, err = m.Moved("/", 0)
	require.ErrorContains(t, err, "lie in many slots")
	_, err = m.Moved("k", 4)
	require.EqualError(t, err, "there is no partition 4: there are 0 to 3")
	_, err = m.Moved("", 0)
	require.EqualError(t, err, "a prefix is missing")
	same, err := m.Moved("k", m.Partition([]byte("k")))
	require.NoError(t, err)
	require.Same(t, m, same)
}

func TestAPinHolds(t *testing.T) {
	m, err := New(4).Pin("/a/", 2, unasked)
	require.NoError(t, err)
	require.Equal(t, []string{"/a/"}, m.Pins())
	require.Equal(t, New(4).Table(), m.Table(), "a slot of the partition is there: no other key has to move")
	everywhere := func(p int) (list []Assignment) {
		for s := range Slots {
			list = append(list, Assignment{s, p})
		}
		return list
	}
	other := m.Assigned(everywhere(3))
	require.Equal(t, 2, other.Partition([]byte("/a/b/c/d")))
	require.Equal(t, 3, other.Partition([]byte("/b/c")))
	require.Equal(t, 1, other.SlotsOf(2))
	_, err = other.Moved("/a/b/", 1)
	require.EqualError(t, err, `"/a/b/" is held in partition 2 by the pin "/a/": unpin that first, or pin it to partition 1`)

	// A deeper one is an exception, whatever comes first.
	m, err = m.Pin("/a/b/", 1, unasked)
	require.NoError(t, err)
	m, err = m.Pin("/a/", 3, unasked)
	require.NoError(t, err)
	require.Equal(t, 3, m.Partition([]byte("/a/c/d")))
	require.Equal(t, 1, m.Partition([]byte("/a/b/d")))

	// Into a partition without slots, it takes its own along.
	m, err = other.Assigned(everywhere(3)).Pin("k", 0, unasked)
	require.NoError(t, err)
	require.Equal(t, 0, m.Partition([]byte("k")))
	require.Equal(t, 1, m.SlotsOf(0))

	require.Same(t, m, m.Unpin("/none/", unasked))
	m = m.Unpin("/a/", unasked)
	require.Equal(t, []string{"k"}, m.Pins())
	require.Equal(t, 3, m.Assigned(everywhere(3)).Partition([]byte("/a/x/y")))
}

// An extension's keys stay together: a pin of some takes the others along, and pins that
// contradict each other are refused.
func TestPinsOfAnExtensionsKeys(t *testing.T) {
	m := New(4).WithRules([]Rule{{"/a/x/", 700}, {"/b/", 700}})
	asked := func(key string) bool { return key == "/a/x/" || key == "/b/" }
	for _, key := range []string{"/a/", "/a/x/", "/a/x/y/", "/a/x/y", "/b/c"} {
		next, err := m.Pin(key, 1, asked)
		require.NoError(t, err)
		for _, k := range []string{"/a/x/1", "/a/x/y/z", "/b/c"} {
			require.Equal(t, 1, next.Partition([]byte(k)), "%s, pinned %s", k, key)
		}
		require.True(t, m.Equal(next.Unpin(key, asked).Assigned([]Assignment{{700, int(m.slots[700])}})))
	}
	next, err := m.Pin("/a/", 1, asked)
	require.NoError(t, err)
	_, err = next.Pin("/b/", 2, asked)
	require.ErrorContains(t, err, `an extension keeps keys of "/b/" together with those of the pin "/a/", in partition 1`)
	next, err = next.Pin("/b/", 1, asked)
	require.NoError(t, err)
	require.Equal(t, []string{"/a/", "/b/"}, next.Pins())
	require.Len(t, next.Unpin("/b/", asked).Rules(), 3, "the extension's rule stays")
}

// Whatever pins there are, all keys of each are where it says, but for those of deeper pins.
func TestPinsAndMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules.Draw(t, "of extensions")
		asked := func(key string) bool { return slices.ContainsFunc(rules, func(r Rule) bool { return r.Key == key }) }
		m := New(8).WithRules(rules)
		pins := map[string]int{}
		for range rapid.IntRange(1, 6).Draw(t, "wishes") {
			key, to := genRuleKey.Draw(t, "key"), rapid.IntRange(0, 7).Draw(t, "to")
			var next *Map
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "wish") {
			case 0:
				next = m.Assigned(genAssignments.Draw(t, "slots"))
			case 1:
				next, err = m.Moved(key, to)
			case 2:
				next = m.Unpin(key, asked)
				delete(pins, key)
			default:
				if next, err = m.Pin(key, to, asked); err == nil {
					pins[key] = to
				}
			}
			if err != nil {
				continue
			}
			m = next
			require.Len(t, m.Pins(), len(pins))
			back, err := Decode(m.Encode())
			require.NoError(t, err)
			require.True(t, m.Equal(back))
		}
		key := genAnyKey.Draw(t, "key")
		if m.rules == nil {
			return
		}
		if over := m.pinOver(string(key)); over != "" {
			require.Equal(t, pins[over], m.Partition(key), "%q is under the pin %q", key, over)
		}
		for _, r := range rules { // together before, together now, unless two pins are over them
			for _, o := range rules {
				if r.Slot == o.Slot && m.pinOver(r.Key) == m.pinOver(o.Key) {
					require.Equal(t, m.Partition([]byte(r.Key)), m.Partition([]byte(o.Key)))
				}
			}
		}
	})
}
