package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
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
		require.False(t, r.MayDowngrade(levelOfResizing-1))
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
	r := wishing(2, levelOfDraining)
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

// Below level 5 all keys move at the change.
func TestKeysMoveAtOnceBelowLevel5(t *testing.T) {
	for _, to := range []int{1, 5} {
		r := wishing(2, levelOfResizing)
		require.NoError(t, r.resize(to).Err)
		require.Nil(t, r.StoredPlacement().Transit())
		require.Equal(t, r.mapOf(to), r.StoredPlacement())
	}
}

// With more partitions no key moves at once; before there are fewer, all leave those that go.
func TestKeysMoveBesideResizes(t *testing.T) {
	r := wishing(2, levelOfDraining)
	require.NoError(t, r.wish(command.Wish{Op: command.Pin, Key: "/p/", Partition: 1}).Err)
	r.arrive()
	var keys [][]byte
	for i := range 50 {
		keys = append(keys, fmt.Appendf(nil, "/d%d/e/k", i), fmt.Appendf(nil, "/p/%d/k", i))
	}
	where := func(m *placement.Map) (list []int) {
		for _, key := range keys {
			list = append(list, m.Partition(key))
		}
		return list
	}
	require.NoError(t, r.resize(5).Err)
	grown := r.StoredPlacement()
	require.NotNil(t, grown.Transit())
	require.Equal(t, where(r.Placement()), where(grown))
	require.Equal(t, []string{"/p/"}, grown.Pins())
	require.NotZero(t, grown.Settled().SlotsOf(4))

	for _, to := range []int{1, 2, 3} {
		r = wishing(4, levelOfDraining)
		require.NoError(t, r.wish(command.Wish{Op: command.Pin, Key: "/p/", Partition: 3}).Err)
		r.arrive()
		require.NoError(t, r.wish(command.Wish{Op: command.Drain, Partition: to}).Err)
		require.NotNil(t, r.Placement().Transit())
		r.arrive()
		drained := r.Placement()
		require.True(t, drained.Within(to))
		require.NoError(t, r.wish(command.Wish{Op: command.Drain, Partition: to}).Err)
		require.Same(t, drained, r.Placement(), "nothing is left to do")
		require.NoError(t, r.resize(to).Err)
		require.Equal(t, to, r.StoredPlacement().Partitions())
		require.Nil(t, r.StoredPlacement().Transit())
		require.Equal(t, where(drained), where(r.StoredPlacement()))
	}
	r = wishing(4, levelOfDraining)
	for _, partitions := range []int{0, 5} {
		require.ErrorIs(t, r.wish(command.Wish{Op: command.Drain, Partition: partitions}).Err, fault.BadPlacement)
	}
	r = wishing(4, levelOfDraining-1)
	require.ErrorIs(t, r.wish(command.Wish{Op: command.Drain, Partition: 2}).Err, fault.VersionTooLow)
}

// A machine whose stores another has refuses reads: its replica knows nothing of what follows.
func TestARetiredMachineDoesNotAnswer(t *testing.T) {
	r := wishing(2, levelOfDraining)
	key := []byte("k")
	p := r.Placement().Partition(key)
	read := func() []error {
		_, _, err := r.Get(key, p, 0, 0)
		_, ranged := r.Range(&pb.RangeRequest{Key: key}, placement.Of(p), 0, 0)
		_, txn := r.ReadTxn(&pb.TxnRequest{}, r.Placement().All(), 0, 0)
		return []error{err, ranged, txn}
	}
	for _, err := range read() {
		require.NoError(t, err)
	}
	r.Retire()
	for _, err := range read() {
		require.ErrorIs(t, err, fault.Moved)
	}
}
