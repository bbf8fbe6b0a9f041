package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// system executes a command of the list of members.
func (r *rig) system(k command.Kind, body []byte) Result {
	var result Result
	r.index++
	e := command.Entry{Commands: []command.Command{{Kind: k, Body: body}}}
	r.Local(0, r.index, 1, &e, func(_ int, res Result) { result = res })
	return result
}

func (r *rig) version(op membership.VersionOp, to version.Level) Result {
	c := membership.VersionChange{Op: op, From: r.Level(), To: to}
	return r.system(command.ClusterVersion, c.Encode())
}

// What a level adds takes effect from the command on that raises the version, and no more from
// the one on that lowers it.
func TestCommandsFollowTheVersion(t *testing.T) {
	r := newRig(1)
	r.LoadMembership(membership.OfIDs(1), nil)
	a := membership.Announcement{Member: &pb.Member{ID: 1, Name: "one"}, Release: "0.2.0"}
	body, err := a.Encode()
	require.NoError(t, err)
	require.ErrorIs(t, r.system(command.MemberAnnounce, body).Err, fault.VersionTooLow)
	require.Empty(t, r.Members()[0].GetName())
	require.NoError(t, r.version(membership.Raise, 2).Err)
	require.NoError(t, r.system(command.MemberAnnounce, body).Err)
	require.Equal(t, "0.2.0", r.Membership().Releases[1])
	require.NoError(t, r.version(membership.Downgrade, 1).Err)
	require.Empty(t, r.Membership().Releases)
	require.ErrorIs(t, r.system(command.MemberAnnounce, body).Err, fault.VersionTooLow)
	for _, k := range []command.Kind{command.ClusterVersion, command.MemberAnnounce} {
		require.Error(t, r.system(k, []byte{9}).Err)
	}
}

// How many keys of a lease a command deletes is a result, which the first release has
// otherwise.
func TestStepsOfALeasesEndFollowTheVersion(t *testing.T) {
	for _, at := range []struct {
		level       version.Level
		limit       int
		keys, after int // of the lease
	}{
		{1, 20_000, 80, 0}, {2, 20_000, 80, 55}, {3, 20_000, 80, 55},
		{2, 400_000, 600, 100}, {3, 400_000, 600, 444},
	} {
		level, left := at.level, at.after
		w := newTwins(t, 1)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = level
			r.LoadMembership(list, nil)
		}
		w.limit(fmt.Sprintf(`{"event_steps": %d}`, at.limit))
		w.succeed(&pb.LeaseGrantRequest{ID: 7, TTL: 600})
		w.succeed(sourcePut("e", `return { scope = { "/x/" }, events = { { event = "expired", prefix = "/x/" } }, event = function() end }`))
		for i := range at.keys {
			w.succeed(&pb.PutRequest{Key: fmt.Appendf(nil, "/x/%d", i), Lease: 7})
		}
		r, _ := w.ask(who{}, &pb.LeaseRevokeRequest{ID: 7})
		if left == 0 {
			require.NoError(t, r.Err)
		} else {
			require.ErrorIs(t, r.Err, fault.LeaseEnding)
		}
		require.Len(t, w.first.Stores[0].LeaseKeys(7), left, "level %d", level)
		w.requireEqual()
	}
}

// A revocation that is for a lease that was there before ends no other one with its ID.
func TestMeantLeasesFollowTheVersion(t *testing.T) {
	whichever, further := &pb.LeaseRevokeRequest{ID: 7}, &pb.LeaseRevokeRequest{ID: 7}
	Further(further)
	of := func(number uint64) *pb.LeaseRevokeRequest { return Revocation(lease.Over{ID: 7, Number: number}) }
	for i, at := range []struct {
		level version.Level
		of    lease.Lease
		req   *pb.LeaseRevokeRequest
		want  error
	}{
		{levelOfMeantLeases - 1, lease.Lease{Number: 3}, of(4), nil},
		{levelOfMeantLeases - 1, lease.Lease{}, further, nil},
		{levelOfMeantLeases, lease.Lease{Number: 3}, of(3), nil},
		{levelOfMeantLeases, lease.Lease{Number: 3}, of(4), fault.LeaseNotFound},
		{levelOfMeantLeases, lease.Lease{Number: 3}, of(0), fault.LeaseNotFound},
		{levelOfMeantLeases, lease.Lease{Number: 3, Remaining: lease.Ending}, of(4), fault.LeaseNotFound},
		{levelOfMeantLeases, lease.Lease{}, of(4), nil},
		{levelOfMeantLeases, lease.Lease{}, of(0), nil},
		{levelOfMeantLeases, lease.Lease{Number: 3}, further, fault.LeaseNotFound},
		{levelOfMeantLeases, lease.Lease{Number: 3, Remaining: 5}, further, fault.LeaseNotFound},
		{levelOfMeantLeases, lease.Lease{Number: 3, Remaining: lease.Ending}, further, nil},
		{levelOfMeantLeases, lease.Lease{Number: 3}, whichever, nil},
		{levelOfMeantLeases, lease.Lease{Number: 3, Remaining: lease.Ending}, whichever, nil},
	} {
		w := newTwins(t, 2)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = at.level
			r.LoadMembership(list, nil)
		}
		w.succeed(&pb.LeaseGrantRequest{ID: 7, TTL: 600})
		w.succeed(&pb.PutRequest{Key: []byte("/x"), Lease: 7})
		for _, r := range []*rig{w.first, w.second} {
			r.Leases.Load(lease.Lease{ID: 7, TTL: 600, Remaining: at.of.Remaining, Number: at.of.Number})
		}
		r, _ := w.ask(who{}, at.req)
		require.ErrorIs(t, r.Err, at.want, i)
		_, is := w.first.Leases.Get(7)
		require.Equal(t, at.want != nil, is, i)
		w.requireEqual()
	}
}

// A lease has a number from the level on that brought them, and a checkpoint then changes no other one. One that was granted before,
// or in the cluster of a backup, has none.
func TestNumbersOfLeasesFollowTheVersion(t *testing.T) {
	for _, partitions := range []int{1, 2} {
		r := newRig(partitions)
		r.LoadMembership(membership.OfIDs(1), nil)
		numbers := func() map[int64]uint64 {
			all := map[int64]uint64{}
			r.Leases.Each(func(l lease.Lease) { all[l.ID] = l.Number })
			return all
		}
		grant := func(id int64) (at uint64) {
			require.NoError(t, r.apply(0, &pb.LeaseGrantRequest{ID: id, TTL: 600})[0].Err)
			return r.leaseNumber()
		}
		version := func(op membership.VersionOp, to version.Level) {
			c := membership.VersionChange{Op: op, From: r.Level(), To: to}
			require.NoError(t, r.everywhere(command.Command{Kind: command.ClusterVersion, Body: c.Encode()}).Err)
		}
		checkpointed := func(number uint64) bool {
			r.apply(0, Checkpoints([]lease.Checkpoint{{ID: 3, Number: number}}))
			r.apply(0, Checkpoints([]lease.Checkpoint{{ID: 3, Remaining: 5, Number: number}}))
			l, _ := r.Leases.Get(3)
			return l.Remaining == 5
		}
		r.Leases.Load(lease.Lease{ID: 1, TTL: 600, Number: 9})
		version(membership.Raise, levelOfMeantLeases-1)
		grant(2)
		require.Equal(t, map[int64]uint64{1: 0, 2: 0}, numbers())
		version(membership.Raise, levelOfMeantLeases)
		first := grant(3)
		require.Equal(t, map[int64]uint64{1: 0, 2: 0, 3: first}, numbers())
		require.True(t, checkpointed(first))
		require.NoError(t, r.apply(0, &pb.LeaseRevokeRequest{ID: 3})[0].Err)
		second := grant(3)
		require.NotEqual(t, second, first)
		require.Equal(t, map[int64]uint64{1: 0, 2: 0, 3: second}, numbers())
		require.False(t, checkpointed(first))
		require.True(t, checkpointed(second))
		version(membership.Downgrade, levelOfMeantLeases-1)
		require.Equal(t, map[int64]uint64{1: 0, 2: 0, 3: 0}, numbers())
		require.True(t, checkpointed(first))
	}
}

// A server that is made a cluster of its own appends to its log of a partition what that lacks, and the others have. A lease is the same
// wherever its grant stands, and what was decided of it is for that.
func TestTheNumberOfALeaseIsTheSameAtAnyPlace(t *testing.T) {
	grant, err := proto.Marshal(&pb.LeaseGrantRequest{ID: 7, TTL: 600})
	require.NoError(t, err)
	there, forced := newRig(2), newRig(2)
	for i, r := range []*rig{there, forced} {
		list := membership.OfIDs(1)
		list.Level = levelOfMeantLeases
		r.LoadMembership(list, nil)
		r.index = uint64(5 * i)
		e := command.Entry{Origin: 9, Seq: 3, Stamp: 2, Commands: []command.Command{{Kind: command.LeaseGrant, Body: grant}}}
		r.execute(&e, r.Placement().All(), nil)
	}
	require.Equal(t, there.Digest(), forced.Digest())
	l, _ := there.Leases.Get(7)
	require.NoError(t, forced.apply(2, Revocation(lease.Over{ID: 7, Number: l.Number}))[0].Err)
}

// A deletion whose handlers would take too many steps even if they did nothing is refused before a
// key is deleted, from level 2 on: the refusal of before names an extension. Fewer keys can be
// deleted.
func TestRefusedDeletionsFollowTheVersion(t *testing.T) {
	for level, text := range map[version.Level]string{1: `most of them of extension "e"`, 2: "nothing was deleted: delete fewer keys at once"} {
		w := newTwins(t, 1)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = level
			r.LoadMembership(list, nil)
		}
		w.limit(`{"event_steps": 2000}`)
		w.succeed(sourcePut("e", `return { scope = { "/x/" }, events = { { event = "deleted", prefix = "/x/" } }, event = function() end }`))
		for i := range 11 {
			w.succeed(&pb.PutRequest{Key: fmt.Appendf(nil, "/x/%02d", i)})
		}
		all := &pb.DeleteRangeRequest{Key: []byte("/x/"), RangeEnd: []byte("/x0")}
		inTxn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: all}}}}
		for _, req := range []proto.Message{all, inTxn} {
			r, _ := w.ask(who{}, req)
			require.ErrorIs(t, r.Err, fault.TooMuchWork)
			require.ErrorContains(t, r.Err, text)
		}
		left, err := w.first.Range(&pb.RangeRequest{Key: []byte("/x/"), RangeEnd: []byte("/x0")}, w.first.Placement().All(), 0, 0)
		require.NoError(t, err)
		require.EqualValues(t, 11, left.Count)
		w.succeed(&pb.DeleteRangeRequest{Key: []byte("/x/0"), RangeEnd: []byte("/x/04")})
		w.requireEqual()
	}
}

// The bounds of the limits of extensions are lower from level 2 on. Limits that were set before
// stay in their key, and count again after a downgrade.
func TestBoundsOfLimitsFollowTheVersion(t *testing.T) {
	w := newTwins(t, 1)
	for _, r := range []*rig{w.first, w.second} {
		r.LoadMembership(membership.OfIDs(1), nil)
	}
	change := func(op membership.VersionOp, to version.Level) {
		for _, r := range []*rig{w.first, w.second} {
			require.NoError(t, r.version(op, to).Err)
		}
	}
	limits := func() extension.Limits { return w.first.Extensions().Limits }
	most := &pb.PutRequest{Key: []byte(extension.LimitsKey), Value: []byte(`{"event_steps": 1000000, "keys": 10000}`)}

	require.Equal(t, extension.First.Defaults, limits())
	change(membership.Raise, 2)
	require.Equal(t, extension.Current.Defaults, limits())
	r, _ := w.ask(who{}, most)
	require.ErrorContains(t, r.Err, "event_steps is 1000000, want 2000 to 500000")
	change(membership.Downgrade, 1)
	require.Equal(t, extension.First.Defaults, limits())
	w.succeed(most)
	change(membership.Raise, 2)
	require.EqualValues(t, 500_000, limits().EventSteps)
	require.Equal(t, 2000, limits().Keys)
	require.NoError(t, w.first.LoadExtensions())
	require.EqualValues(t, 500_000, limits().EventSteps, "after a restart, too")
	change(membership.Downgrade, 1)
	require.EqualValues(t, 1_000_000, limits().EventSteps)
	require.Equal(t, 10_000, limits().Keys)
	w.requireEqual()
}

// A block handler's client gets a key that an event handler of the same call creates at once, from level 7 on: before it
// was told to wait for it.
func TestAnswersToBlocksFollowTheVersion(t *testing.T) {
	for level, versions := range map[version.Level]int64{levelOfSettledBlocks - 1: 0, levelOfSettledBlocks: 1} {
		w := newTwins(t, 1)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = level
			r.LoadMembership(list, nil)
		}
		w.succeed(sourcePut("asks", `return { scope = { "/x/" }, operations = { { op = "block", key = "/go" } },
			block = function() put("/x/question", "1") block("/x/answer") end }`))
		w.succeed(sourcePut("answers", `return { scope = { "/x/" }, events = { { event = "created", key = "/x/question" } },
			event = function() put("/x/answer", "42") end }`))
		r, _ := w.ask(who{}, &pb.WatchCreateRequest{Key: []byte("/go")})
		require.NoError(t, r.Err)
		kv := r.Response.(*pb.RangeResponse).Kvs[0]
		require.Equal(t, "/x/answer", string(kv.Key))
		require.Equal(t, versions, kv.Version, "level %d", level)
	}
}

// [k, k+"\x00") is another way to write the key k. From level 7 on extensions are asked about it as about the key, and strict
// ones are not passed by.
func TestKeysWrittenAsRangesFollowTheVersion(t *testing.T) {
	for level, refused := range map[version.Level]error{levelOfPoints - 1: nil, levelOfPoints: fault.Unacknowledged} {
		w := newTwins(t, 3)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = level
			r.LoadMembership(list, nil)
		}
		owner, other := who{client: "alice"}, who{client: "bob"}
		ask := func(c who, req proto.Message) error { r, _ := w.ask(c, req); return r.Err }
		require.NoError(t, ask(owner, sourcePut("s", `return { scope = { "/s/" }, strict = true, operations = { { op = "delete", key = "/s/k" } },
			delete = function(r) put("/s/asked", r.key .. r.range_end) end }`)))
		point := &pb.DeleteRangeRequest{Key: []byte("/s/k"), RangeEnd: []byte("/s/k\x00")}
		inTxn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: point}}}}
		for _, req := range []proto.Message{point, inTxn} {
			require.ErrorIs(t, ask(other, req), refused)
			if refused != nil { // also if its server doesn't know it yet
				require.ErrorIs(t, w.tell(req, Plan{Parts: w.first.Placement().All()}).Err, fault.Moved)
			}
		}
		require.NoError(t, ask(owner, point))
		_, s := (&execution{m: w.first.Machine, local: several}).store([]byte("/s/asked"))
		if refused == nil {
			require.False(t, s.Get([]byte("/s/asked")).Exists())
		} else {
			require.Equal(t, "/s/k", string(s.Get([]byte("/s/asked")).Value()))
		}

		require.NoError(t, ask(other, &pb.PutRequest{Key: []byte("/em/s/ack")}))
		require.NoError(t, ask(other, &pb.DeleteRangeRequest{Key: []byte("/em/s/ack"), RangeEnd: []byte("/em/s/ack\x00")}))
		_, s = (&execution{m: w.first.Machine, local: several}).store([]byte("/em/s/ack/bob"))
		require.Equal(t, refused == nil, s.Get([]byte("/em/s/ack/bob")).Exists())
		w.requireEqual()
	}
}

// A release that knows of no fenced members would serve what one of them has.
func TestAMemberThatDiffersHoldsTheVersion(t *testing.T) {
	r := newRig(1)
	list := membership.OfIDs(1)
	list.Level = levelOfChecks + 1
	r.LoadMembership(list, nil)
	alarm := func(do pb.AlarmRequest_AlarmAction, what pb.AlarmType) {
		body, err := proto.Marshal(&pb.AlarmRequest{Action: do, MemberID: 1, Alarm: what})
		require.NoError(t, err)
		require.NoError(t, r.system(command.Alarm, body).Err)
	}
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE)
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT)
	require.True(t, r.MayDowngrade(levelOfChecks))
	require.False(t, r.MayDowngrade(levelOfChecks-1))
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_CORRUPT)
	require.True(t, r.MayDowngrade(levelOfChecks-1))
	// Once it is proposed, releases of level 6 carry it out.
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT)
	require.NoError(t, r.version(membership.Downgrade, levelOfChecks).Err)
	require.NoError(t, r.version(membership.Cancel, 0).Err)
	require.NoError(t, r.version(membership.Downgrade, levelOfChecks-1).Err)
}

// While a lease ends in steps, its keys that are left can be written as by a put that ignores their lease: by the handlers
// that its end wakes, too, which would lose all that they write.
func TestKeysOfALeaseThatEndsAreWritten(t *testing.T) {
	for level, told := range map[version.Level]string{levelOfKeptLeases - 1: "5", levelOfKeptLeases: "30"} {
		each(t, func(t *testing.T, w *twins) {
			for _, r := range []*rig{w.first, w.second} {
				list := *r.Membership()
				list.Level = level
				r.LoadMembership(&list, r.Configurations())
			}
			w.limit(`{"event_steps": 20000}`)
			w.register("counts", `return { scope = { "/x/", "/n" }, events = { { event = "expired", prefix = "/x/" } },
				event = function(e) cas("/x/z", "1", "1") put("/n", tonumber(get("/n")) + 1) end }`)
			w.must("put /n 0")
			w.must("grant 7 60")
			for i := range 29 {
				w.must(fmt.Sprintf("put /x/%02d 1 lease:7", i))
			}
			w.must("put /x/z 1 lease:7")
			steps := 1
			for ; ; steps++ {
				r, _ := w.ask(who{}, requestOf("revoke 7"))
				if r.Err == nil {
					break
				}
				require.ErrorIs(t, r.Err, fault.LeaseEnding)
			}
			require.Greater(t, steps, 1)
			require.Zero(t, w.first.count(t, "/x/"))
			_, s := (&execution{m: w.first.Machine, local: several}).store([]byte("/n"))
			require.Equal(t, told, string(s.Get([]byte("/n")).Value()))
			w.requireEqual()
		})
	}
}
