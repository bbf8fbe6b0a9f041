package mirror

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Steps have the changes' effect, are within the limits, and end whole revisions wherever
// they don't say Partial.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Ops: rapid.IntRange(1, 5).Draw(t, "ops"), Bytes: rapid.IntRange(40, 300).Draw(t, "bytes")}
		every := rapid.Bool().Draw(t, "every change")
		var changes []Change
		states := map[int64]map[string]string{0: {}} // by revision
		state := map[string]string{}
		for rev := range int64(rapid.IntRange(0, 8).Draw(t, "revisions")) {
			for range rapid.IntRange(1, 9).Draw(t, "changes") {
				c := Change{Revision: rev + 1, Key: []byte(rapid.StringOfN(rapid.RuneFrom([]rune("abcdefgh")), 1, 1, -1).Draw(t, "key"))}
				if c.Deleted = rapid.Bool().Draw(t, "deleted"); c.Deleted {
					delete(state, string(c.Key))
				} else {
					c.Value = []byte(rapid.StringN(0, 60, 60).Draw(t, "value"))
					state[string(c.Key)] = string(c.Value)
				}
				changes = append(changes, c)
			}
			copied := map[string]string{}
			for k, v := range state {
				copied[k] = v
			}
			states[rev+1] = copied
		}
		got := map[string]string{}
		last, told := int64(0), 0
		for _, s := range plan(changes, l, every) {
			size, seen := 0, map[string]bool{}
			for _, op := range s.ops {
				size += op.size()
				require.False(t, seen[string(op.Key)], "a key twice in a transaction")
				seen[string(op.Key)] = true
				told++
				if op.Delete {
					delete(got, string(op.Key))
				} else {
					got[string(op.Key)] = string(op.Value)
				}
			}
			require.NotEmpty(t, s.ops)
			require.True(t, len(s.ops) == 1 || len(s.ops) <= l.Ops && size <= l.Bytes, "%d operations, %d bytes", len(s.ops), size)
			if s.phase == At {
				require.Equal(t, states[s.revision], got)
			} else {
				require.Equal(t, Partial, s.phase)
				require.Equal(t, last+1, s.revision, "the revision before must be complete")
				continue
			}
			last = s.revision
		}
		require.Equal(t, state, got)
		if every {
			require.Equal(t, distinct(changes), told, "each change of a revision is written")
			deletionsAtTheirRevision(t, changes, l)
		}
	})
}

// distinct counts the changes without those that a later one of the same revision replaces.
func distinct(changes []Change) int {
	seen := map[string]bool{}
	for _, c := range changes {
		seen[fmt.Sprint(c.Revision, string(c.Key))] = true
	}
	return len(seen)
}

func deletionsAtTheirRevision(t *rapid.T, changes []Change, l Limits) {
	final := map[string]bool{} // by revision and key: it is deleted
	for _, c := range changes {
		final[fmt.Sprint(c.Revision, string(c.Key))] = c.Deleted
	}
	for _, s := range plan(changes, l, true) {
		for _, op := range s.ops {
			if op.Delete {
				require.True(t, final[fmt.Sprint(s.revision, string(op.Key))], "%q is not deleted at %d", op.Key, s.revision)
			}
		}
	}
}

func TestPlanBundles(t *testing.T) {
	var changes []Change
	for rev := range int64(10) {
		changes = append(changes, Change{Revision: rev + 5, Key: fmt.Append(nil, rev)})
	}
	steps := plan(changes, Limits{Ops: 4, Bytes: 1000}, false)
	require.Len(t, steps, 3)
	require.EqualValues(t, 8, steps[0].revision)
	require.EqualValues(t, 14, steps[2].revision)
}

func TestParseMark(t *testing.T) {
	m := Mark{Source: 1 << 63, Phase: Partial, Revision: 12, Owner: "a", Number: 3}
	got, err := ParseMark(m.encode())
	require.NoError(t, err)
	require.Equal(t, m, got)
	for _, bad := range []string{"", "{}", `{"phase":"resting"}`, "null"} {
		_, err := ParseMark([]byte(bad))
		require.Error(t, err, bad)
	}
}
