package salvage

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
)

func resize(origin uint64, stamp int64, seq uint64, parts ...int) made {
	m := grant(origin, stamp, seq, parts...)
	m.entry.Commands[0] = command.Command{Kind: command.Resize, Body: command.AppendResize(nil, 3)}
	return m
}

// A change of the number of partitions that some logs have is completed, and nothing more: what
// is behind it, here a rendezvous with a partition that is yet to come, stays for the next plan.
func TestAPlanGoesToTheEndOfTheGeneration(t *testing.T) {
	groups := []Group{
		group(t, old, put(20, 5, 1), resize(20, 7, 3, 0, 1), barrier(6, 30, 1), put(30, 9, 2, 0, 2)),
		group(t, old, put(20, 6, 2)),
	}
	repairs, done, err := Plan(self, membership.OfIDs(1, 2, 3), groups, forcing)
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, Repair{Commit: 12}, repairs[0])
	require.Len(t, repairs[1].Entries, 2)
	require.EqualValues(t, 12, repairs[1].Entries[0].GetIndex(), "nothing is replaced")
	begin, err := readItem(repairs[1].Entries[0])
	require.NoError(t, err)
	epoch, opens := begin.entry.Opens()
	require.True(t, opens)
	require.Greater(t, epoch.Term, uint64(6), "also than what is behind the end")
	end, err := readItem(repairs[1].Entries[1])
	require.NoError(t, err)
	require.True(t, end.entry.Resizes())
	require.EqualValues(t, 7, end.entry.Stamp)

	// Again, after a crash: all logs have it.
	groups[1].Tail = append(groups[1].Tail, repairs[1].Entries...)
	repairs, done, err = Plan(self, membership.OfIDs(1, 2, 3), groups, forcing)
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, []Repair{{Commit: 12}, {Commit: 13}}, repairs)
}

// One that was never committed is given up, with all that is behind it.
func TestAStaleEndIsNone(t *testing.T) {
	shapes := plan(t,
		group(t, old, put(20, 5, 1), resize(20, 7, 3, 0, 1), barrier(6, 30, 1)),
		group(t, old, barrier(6, 30, 1), put(30, 6, 2)))
	require.Equal(t, 1, shapes[0].kept)
	require.Equal(t, 2, shapes[0].dropped)
}

// One that was planned in a generation of fewer groups was refused, and its epoch is followed by another; the groups that it
// wasn't for have all that came then.
func TestAChangeThatIsNotForAllGroupsIsNoEnd(t *testing.T) {
	behind := []made{barrier(4, 20, 4), put(20, 7, 5, 0, 1, 2), put(20, 8, 6, 0, 1, 2)}
	shapes := plan(t,
		group(t, old, append([]made{put(20, 5, 1), resize(20, 7, 3, 0, 1)}, behind...)...),
		group(t, old, append([]made{put(20, 6, 2), resize(20, 7, 3, 0, 1)}, behind...)...),
		group(t, old, behind...))
	for p, kept := range []int{5, 5, 3} {
		require.Equal(t, kept, shapes[p].kept)
		require.Empty(t, shapes[p].completed)
	}
}

// change is a change of the list of members.
func change(origin uint64, stamp int64, seq uint64, parts ...int) made {
	m := grant(origin, stamp, seq, parts...)
	m.entry.Commands[0].Kind = command.MemberChange
	return m
}

// A change of the number of partitions is refused unless all groups have followed the list of members, and so is
// another change of that. Group 1's log lacks these, and the steps by which its group had done so; or no group had, as
// group 0's log shows.
func TestTheEndIsExecutedAsItWas(t *testing.T) {
	remove := step(membership.Step{Kind: membership.RemoveServer, ID: 3, Generation: 1})
	learner := step(membership.Step{Kind: membership.AddNonvoter, ID: 4, Number: 1, Generation: 2})
	for _, tc := range []struct {
		has   []made // of group 0
		lacks []string
	}{
		{[]made{change(20, 5, 1, 0, 1), remove, put(20, 5, 2), resize(20, 6, 3, 0, 1)}, []string{"member-change", "remove 3", "resize"}},
		{[]made{change(20, 5, 1, 0, 1), put(20, 5, 2), resize(20, 6, 3, 0, 1), remove}, []string{"member-change", "resize"}},
		{[]made{change(20, 5, 1, 0, 1), remove, change(20, 5, 2, 0, 1), learner, resize(20, 5, 3, 0, 1)},
			[]string{"member-change", "remove 3", "member-change", "add learner 4", "resize"}},
	} {
		repairs, done, err := Plan(self, membership.OfIDs(1, 2, 3), []Group{group(t, old, tc.has...), group(t, old)}, forcing)
		require.NoError(t, err)
		require.False(t, done)
		var appended []string
		for _, e := range repairs[1].Entries[1:] {
			it, err := readItem(e)
			require.NoError(t, err)
			if it.step != nil {
				appended = append(appended, it.step.String())
				continue
			}
			appended = append(appended, fmt.Sprint(it.entry.Commands[0].Kind))
		}
		require.Equal(t, tc.lacks, appended)
	}
}
