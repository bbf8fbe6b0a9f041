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
		last := int64(0)
		for _, s := range plan(changes, l) {
			size, seen := 0, map[string]bool{}
			for _, op := range s.ops {
				size += op.size()
				require.False(t, seen[string(op.Key)], "a key twice in a transaction")
				seen[string(op.Key)] = true
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
	})
}

func TestPlanBundles(t *testing.T) {
	var changes []Change
	for rev := range int64(10) {
		changes = append(changes, Change{Revision: rev + 5, Key: fmt.Append(nil, rev)})
	}
	steps := plan(changes, Limits{Ops: 4, Bytes: 1000})
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
