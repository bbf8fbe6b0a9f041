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

// wishing is a rig at a level at which there are wishes.
func wishing(partitions int, level version.Level) *rig {
	r := newRig(partitions)
	r.quiet, r.held = true, true
	list := membership.OfIDs(1)
	list.Level = level
	r.LoadMembership(list, nil)
	return r
}

// wish asks for something, as root.
func (r *rig) wish(w command.Wish) (res Result) {
	e := &command.Entry{Stamp: r.next(), Commands: []command.Command{{Kind: command.Place, Body: w.AppendTo(nil)}}}
	r.execute(e, r.Placement().All(), func(_ int, got Result) { res = got })
	return res
}

func (r *rig) arrive() {
	for r.Placement().Transit() != nil {
		r.step(r.next(), 3, nil)
	}
}

func (r *rig) next() (stamp int64) {
	if len(r.Stores) == 1 {
		return 0
	}
	for _, s := range r.Stores {
		stamp = max(stamp, s.Rev()+1)
	}
	return stamp
}

// has tells in which partition a key lies, and that it lies in no other.
func (r *rig) has(t *testing.T, key string) int {
	at := -1
	for p, s := range r.Stores {
		if s.Get([]byte(key)).Exists() {
			require.Equal(t, -1, at, "%s is in two partitions", key)
			at = p
		}
	}
	require.Equal(t, r.Placement().Partition([]byte(key)), at, key)
	return at
}

func TestWishesMoveKeys(t *testing.T) {
	r := wishing(3, 3)
	for i := range 30 {
		for _, key := range []string{"/d/%02d/k", "/d/%02d/l", "flat-%02d", "/a/b/%02d"} {
			r.apply(r.next(), &pb.PutRequest{Key: fmt.Appendf(nil, key, i)})
		}
	}
	for to := range 3 {
		res := r.wish(command.Wish{Op: command.MoveSlot, Key: "/a/b/", Partition: to})
		require.NoError(t, res.Err)
		if r.Placement().Transit() != nil {
			require.ErrorIs(t, r.wish(command.Wish{Op: command.Unpin, Key: "/a/"}).Err, fault.Moving)
		}
		r.arrive()
		require.Equal(t, to, r.has(t, "/a/b/07"))
	}
	var all command.Wish
	all.Op = command.Assign
	for s := range placement.Slots {
		all.Slots = append(all.Slots, placement.Assignment{Slot: s, Partition: 1})
	}
	require.NoError(t, r.wish(command.Wish{Op: command.Pin, Key: "/d/", Partition: 2}).Err)
	r.arrive()
	require.NoError(t, r.wish(all).Err)
	r.arrive()
	for i := range 30 {
		require.Equal(t, 2, r.has(t, fmt.Sprintf("/d/%02d/k", i)), "it is pinned")
		require.Equal(t, 1, r.has(t, fmt.Sprintf("flat-%02d", i)))
	}
	before := r.Placement()
	require.NoError(t, r.wish(all).Err)
	require.Same(t, before, r.Placement(), "nothing is left to do")
}

func TestWishesThatAreRefused(t *testing.T) {
	r := wishing(2, 3)
	before := r.Placement()
	for _, w := range []command.Wish{
		{Op: command.MoveSlot, Key: "/a/b/", Partition: 2},
		{Op: command.MoveSlot, Key: "/a/", Partition: 1},
		{Op: command.Pin, Partition: 1},
		{Op: command.Pin, Key: "/a/", Partition: 7},
		{Op: command.Unpin, Key: "/a/"},
		{Op: command.Assign, Slots: []placement.Assignment{{Slot: 1, Partition: 2}}},
	} {
		require.ErrorIs(t, r.wish(w).Err, fault.BadPlacement, "%+v", w)
	}
	require.Same(t, before, r.Placement())
	pin := command.Wish{Op: command.Pin, Key: "/a/", Partition: 1}
	early := wishing(2, 2)
	require.ErrorIs(t, early.wish(pin).Err, fault.VersionTooLow)

	// A release that knows no pins would take their keys elsewhere.
	r = wishing(1, 3)
	require.NoError(t, r.wish(command.Wish{Op: command.Pin, Key: "/a/"}).Err)
	require.ErrorIs(t, r.version(membership.Downgrade, 2).Err, fault.BadDowngradeTarget)
	require.NoError(t, r.wish(command.Wish{Op: command.Unpin, Key: "/a/"}).Err)
	require.NoError(t, r.version(membership.Downgrade, 2).Err)
}

// Extensions and pins share one map: whoever comes first, an extension's keys stay together
// and a pin's where it says, also after the other has gone and after a restart.
func TestPinsAndExtensions(t *testing.T) {
	for _, pinFirst := range []bool{true, false} {
		r := wishing(3, 3)
		scoped := sourcePut("e", `return { scope = { "/a/x/", "/b/" }, operations = { { op = "read", key = "/nowhere" } }, read = function(r) return nil end }`)
		keys := []string{"/a/x/1", "/b/c/1", "/b/d/1"}
		for _, key := range append(keys, "/a/y/1") {
			r.apply(r.next(), &pb.PutRequest{Key: []byte(key)})
		}
		pin := func() {
			require.NoError(t, r.wish(command.Wish{Op: command.Pin, Key: "/a/", Partition: 2}).Err)
			r.arrive()
		}
		if pinFirst {
			pin()
		}
		r.carry(t, scoped)
		if !pinFirst {
			pin()
		}
		restarted := func() { require.NoError(t, r.LoadExtensions()) }
		restarted()
		for _, key := range append(keys, "/a/y/1") {
			require.Equal(t, 2, r.has(t, key), "%s, pin first: %v", key, pinFirst)
		}
		err := r.wish(command.Wish{Op: command.Pin, Key: "/b/", Partition: 1}).Err
		require.ErrorIs(t, err, fault.BadPlacement)
		require.ErrorContains(t, err, "an extension keeps keys of \"/b/\" together with those of the pin \"/a/\"")

		r.carry(t, &pb.DeleteRangeRequest{Key: []byte("/em/e")})
		restarted()
		require.Equal(t, 2, r.has(t, "/a/x/1"), "the pin is still there")
		require.Equal(t, []placement.Rule{{Key: "/a/", Slot: r.Placement().Rules()[0].Slot}}, r.Placement().Rules())
		require.NoError(t, r.wish(command.Wish{Op: command.Unpin, Key: "/a/"}).Err)
		r.arrive()
		require.Empty(t, r.Placement().Rules())
		require.Equal(t, int(r.Placement().Table()[placement.HashSlot([]byte("/a/y/1"))]), r.has(t, "/a/y/1"))
	}
}
