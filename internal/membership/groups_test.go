package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersOfGroupsAreNeverUsedAgain(t *testing.T) {
	g := FirstGroups(2)
	seen := map[uint32]int{} // the generation in which the group was last
	for _, n := range []int{4, 4, 1, 16, 3, 5, 2} {
		for p := range g.Born {
			number := g.Number(p)
			if last, was := seen[number]; was {
				require.EqualValues(t, g.Generation-1, last, "group %d was away", number)
			}
			seen[number] = int(g.Generation)
			q, is := g.Partition(number)
			require.True(t, is)
			require.Equal(t, p, q)
			require.Equal(t, p, PartitionOf(number))
			require.False(t, g.Gone(number))
		}
		for number, last := range seen {
			require.Equal(t, last != int(g.Generation), g.Gone(number))
		}
		ending := g.Ending(n)
		require.Equal(t, g.Born, ending.Born)
		g = ending.Following()
		require.Zero(t, g.Next)
		require.NoError(t, g.Check(n))
		require.Error(t, g.Check(n+1))
	}
	require.EqualValues(t, 0, FirstGroups(3).Number(0))
	require.EqualValues(t, 2, FirstGroups(3).Number(2), "as before there were generations")
	require.False(t, FirstGroups(3).Gone(1<<8), "of a later generation")
}
