package version

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevels(t *testing.T) {
	require.Len(t, levels, int(Newest))
	require.LessOrEqual(t, Oldest, Newest)
	for l := Level(1); l <= Newest; l++ {
		release := levels[l-1].since
		got, ok := LevelOf(release)
		require.True(t, ok)
		require.Equal(t, l, got)
		require.Equal(t, release+".0", l.String())
		if l > 1 {
			require.GreaterOrEqual(t, l.Language(), (l - 1).Language(), "a language is never given up")
		}
	}
	require.True(t, strings.HasPrefix(Stoa, levels[Newest-1].since+"."), "this release brought the newest level, or comes after it")
	_, ok := LevelOf("3.6")
	require.False(t, ok)
	require.Equal(t, "level 9", Level(9).String())
}

func TestLevelsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "versions.md"))
	require.NoError(t, err)
	for i, l := range levels {
		require.Contains(t, strings.Join(strings.Fields(string(text)), " "), l.adds, "level %d", i+1)
	}
}

func TestWhoCanBeAMember(t *testing.T) {
	require.NoError(t, Known{1, 2}.CheckMember(1))
	require.NoError(t, Known{1, 2}.CheckMember(2))
	require.EqualError(t, First.CheckMember(2),
		"it is too old: the cluster's version is 0.2.0, and it knows none above 0.1.0. Start it with stoa 0.2.0 or later")
	require.EqualError(t, Known{2, 3}.CheckMember(1),
		"it is too new: the cluster's version is 0.1.0, and it knows none below 0.2.0. Upgrade all members to stoa 0.2.0 first")
}

func TestWhichFilesCanBeRead(t *testing.T) {
	require.NoError(t, CheckData(Oldest))
	require.NoError(t, CheckData(Newest))
	require.EqualError(t, CheckData(Newest+1), "it was written at the cluster version level 8, and this is stoa "+Stoa+
		", which reads up to 0.7.0: start the release that wrote it, or a later one")
	require.EqualError(t, CheckData(Oldest-1), "it was written at the cluster version level 0, and this is stoa "+Stoa+
		", which reads from 0.1.0: upgrade with a release in between first")
}

func TestLowest(t *testing.T) {
	for _, tc := range []struct {
		members []Known
		level   Level
		ok      bool
	}{
		{[]Known{{1, 2}}, 2, true},
		{[]Known{{1, 2}, {1, 1}}, 1, true},
		{[]Known{{1, 2}, {2, 9}}, 2, true},
		{[]Known{{1, 1}, {2, 3}}, 1, false},
	} {
		l, ok := Lowest(tc.members)
		require.Equal(t, tc.level, l, "%v", tc.members)
		require.Equal(t, tc.ok, ok, "%v", tc.members)
	}
}
