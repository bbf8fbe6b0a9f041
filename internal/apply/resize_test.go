package apply

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// everywhere executes a command in all partitions.
func (r *rig) everywhere(c command.Command) (res Result) {
	e := &command.Entry{Stamp: r.next(), Commands: []command.Command{c}}
	r.execute(e, r.Placement().All(), func(_ int, got Result) { res = got })
	return res
}

func (r *rig) resize(to int) Result {
	return r.everywhere(command.Command{Kind: command.Resize, Body: command.AppendResize(nil, to)})
}

func (r *rig) lower(to version.Level) Result {
	c := membership.VersionChange{Op: membership.Downgrade, From: r.Level(), To: to}
	return r.everywhere(command.Command{Kind: command.ClusterVersion, Body: c.Encode()})
}

// A release below 0.4 knows only the groups with which a cluster began: a resized one can't go
// down to it, also if it has as many partitions again as in the beginning.
func TestAResizedClusterKeepsItsVersion(t *testing.T) {
	r := wishing(2, levelOfResizing)
	first := r.Groups()
	end := first.Ending(3)
	next := end.Following()
	for _, g := range []*membership.Groups{end, next, next.Ending(2).Following()} {
		r.LoadGroups(g)
		require.False(t, r.MayLeaveGroups(levelOfResizing-1))
		require.ErrorIs(t, r.lower(levelOfResizing-1).Err, fault.BadDowngradeTarget)
		require.Equal(t, levelOfResizing, r.Level())
	}
	r.LoadGroups(first)
	require.NoError(t, r.lower(levelOfResizing-1).Err)
	require.ErrorIs(t, r.resize(3).Err, fault.VersionTooLow)
	require.Same(t, first, r.Groups())
}

// The command ends the generation, and says of which number the next one is.
func TestResizeEndsTheGeneration(t *testing.T) {
	r := wishing(2, levelOfResizing)
	for _, refused := range []int{MaxGroups + 1, 1 << 10} {
		require.ErrorIs(t, r.resize(refused).Err, fault.BadPlacement)
	}
	require.NoError(t, r.resize(2).Err, "nothing to change")
	require.Zero(t, r.Groups().Next)
	require.NoError(t, r.resize(5).Err)
	require.Equal(t, 5, r.Groups().Next)
	require.Equal(t, 5, r.StoredPlacement().Partitions())
	require.Equal(t, 2, r.Placement().Partitions(), "as long as this machine lives")
}
