package salvage

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

const forcing = 999 // the origin of what is planned

// made is an entry of a tail before it is encoded.
type made struct {
	entry command.Entry
	step  *membership.Step
}

func put(origin uint64, stamp int64, seq uint64, parts ...int) made {
	e := command.Entry{Origin: origin, Stamp: stamp, Seq: seq, Commands: []command.Command{{Kind: command.Put}}}
	for _, p := range parts {
		e.Parts |= placement.Of(p)
	}
	return made{entry: e}
}

// grant takes no stamp of its own.
func grant(origin uint64, stamp int64, seq uint64, parts ...int) made {
	m := put(origin, stamp, seq, parts...)
	m.entry.Commands[0].Kind = command.LeaseGrant
	return m
}

func barrier(term, origin, seq uint64) made {
	return made{entry: command.Barrier(term, origin, seq)}
}

func step(s membership.Step) made { return made{step: &s} }

// tail encodes entries that follow index 10.
func tail(t *testing.T, entries ...made) (list []*raftpb.Entry) {
	t.Helper()
	for i, m := range entries {
		e := &raftpb.Entry{Index: new(uint64(11 + i)), Term: new(uint64(3)), Type: new(raftpb.EntryNormal), Data: m.entry.AppendTo(nil)}
		if m.step != nil {
			data, err := proto.Marshal(raftlog.ConfChange(m.step))
			require.NoError(t, err)
			e.Type, e.Data = new(raftpb.EntryConfChange), data
		}
		list = append(list, e)
	}
	return list
}

func group(t *testing.T, epoch command.Epoch, entries ...made) Group {
	t.Helper()
	return Group{
		Config: membership.Initial(membership.OfIDs(1, 2, 3)), Epochs: command.Epochs{Epoch: epoch}, Index: 10, Revision: 4, Tail: tail(t, entries...), Term: 5,
	}
}

var self = &pb.Member{ID: 1, PeerURLs: []string{"http://a:1"}}

// shape is what a repair does to a log.
type shape struct {
	kept, dropped int
	completed     []uint64 // the Seqs
	steps         []string
}

// plan plans, and checks what holds for every repair.
func plan(t *testing.T, groups ...Group) (shapes []shape) {
	t.Helper()
	repairs, _, err := Plan(self, membership.OfIDs(1, 2, 3), groups, forcing)
	require.NoError(t, err)
	require.Len(t, repairs, len(groups))
	for p, r := range repairs {
		first := r.Entries[0].GetIndex()
		require.Greater(t, r.Entries[0].GetTerm(), groups[p].Term)
		s := shape{kept: int(first) - 11, dropped: r.Dropped}
		require.Equal(t, len(groups[p].Tail), s.kept+s.dropped)
		for i, e := range r.Entries {
			require.Equal(t, first+uint64(i), e.GetIndex())
			require.EqualValues(t, r.Entries[0].GetTerm(), e.GetTerm())
			it, err := readItem(e)
			require.NoError(t, err)
			switch {
			case i == 0:
				epoch, ok := it.entry.Opens()
				require.True(t, ok)
				require.Equal(t, command.Epoch{Term: repairs[0].Entries[0].GetTerm(), Origin: forcing, Seq: 1}, epoch)
			case i == len(r.Entries)-1:
				requireReset(t, &it.entry, len(groups))
			case it.step != nil:
				s.steps = append(s.steps, it.step.String())
			default:
				s.completed = append(s.completed, it.entry.Seq)
			}
		}
		require.Len(t, s.completed, r.Completed)
		shapes = append(shapes, s)
	}
	return shapes
}

func requireReset(t *testing.T, e *command.Entry, partitions int) {
	t.Helper()
	require.EqualValues(t, forcing, e.Origin)
	require.Equal(t, partitions, e.Parts.Len())
	c, err := membership.Decode(e.Commands[0].Body)
	require.NoError(t, err)
	require.Equal(t, membership.Reset, c.Op)
	require.Equal(t, self.GetPeerURLs(), c.Member.GetPeerURLs())
}

var (
	removals = []string{"remove 2", "remove 3"}
	old      = command.Epoch{Term: 2, Origin: 20, Seq: 1, First: 2}
)

func TestTheWholeLogIsKept(t *testing.T) {
	require.Equal(t, []shape{{kept: 2, steps: removals}}, plan(t, group(t, command.Epoch{}, put(20, 0, 5), put(20, 0, 6))))
	// One group has gone on with the next leader; the other is only behind.
	require.Equal(t, []shape{{kept: 1, steps: removals}, {kept: 2, steps: removals}},
		plan(t, group(t, old, put(20, 5, 5)), group(t, old, barrier(3, 30, 1), put(30, 6, 2))))
}

// Stamp 5 was lost, and given again by the next leader, which has completed the grant that carries 6.
func TestAGrantComesBeforeTheNextEpoch(t *testing.T) {
	late, after, single := grant(20, 6, 6, 0, 1, 2), grant(30, 5, 2, 0, 1, 2), put(30, 5, 3, 0, 2)
	require.Equal(t, []shape{
		{kept: 4, steps: removals},
		{kept: 1, completed: []uint64{2}, steps: removals},
		{kept: 0, completed: []uint64{6, 2, 3}, steps: removals},
	}, plan(t, group(t, old, late, barrier(3, 30, 1), after, single), group(t, old, late), group(t, old)))
	// Only the log in which the next leader has completed it has it.
	require.Equal(t, []shape{
		{kept: 0, completed: []uint64{6, 2, 3}, steps: removals},
		{kept: 0, completed: []uint64{6, 2}, steps: removals},
		{kept: 4, steps: removals},
	}, plan(t, group(t, old), group(t, old), group(t, old, barrier(3, 30, 1), late, after, single)))
	// Nothing shows in which epoch it was stamped.
	next := command.Epoch{Term: 3, Origin: 30, Seq: 1}
	require.Equal(t, []shape{
		{kept: 0, completed: []uint64{6, 2, 3}, steps: removals},
		{kept: 0, completed: []uint64{6, 2}, steps: removals},
		{kept: 3, steps: removals},
	}, plan(t, group(t, next), group(t, next), group(t, next, late, after, single)))
}

func TestHalfProposedRendezvousAreCompleted(t *testing.T) {
	a, b, c := put(20, 5, 5, 0, 1), grant(20, 6, 6, 0, 1, 2), put(20, 6, 7, 0, 2)
	require.Equal(t, []shape{
		{kept: 4, steps: removals},
		{kept: 1, completed: []uint64{5, 6}, steps: removals},
		{kept: 0, completed: []uint64{6, 7}, steps: removals},
	}, plan(t, group(t, old, put(20, 5, 4), a, b, c), group(t, old, put(20, 4, 3)), group(t, old)))
}

// The next leader had not received the end of the log of group 0, and gives its stamps again.
func TestAStampThatIsGivenTwiceIsNotCommitted(t *testing.T) {
	stale := []made{put(20, 5, 5), put(20, 6, 6), put(20, 9, 9)}
	want := []shape{{kept: 1, dropped: 2, steps: removals}, {kept: 2, steps: removals}}
	require.Equal(t, want, plan(t, group(t, old, stale...), group(t, old, barrier(3, 30, 1), put(30, 6, 2))))
	// The same server, in the same term of group 0.
	require.Equal(t, want, plan(t, group(t, old, stale...), group(t, old, barrier(2, 20, 70), put(20, 6, 71))))
	// All of the next leader's is in the state already, and gone from the log.
	later := command.Epoch{Term: 3, Origin: 30, Seq: 1, First: 6}
	want[1].kept = 0
	require.Equal(t, want, plan(t, group(t, old, stale...), group(t, later)))
	// It may have stamped nothing yet.
	later.First = 0
	require.Equal(t, []shape{{kept: 3, steps: removals}, {steps: removals}}, plan(t, group(t, old, stale...), group(t, later)))
}

// The later leader has stamped, and that is in the state of group 1 already, in which yet another has begun an epoch since.
func TestAnEpochThatIsOverProvesEntriesStale(t *testing.T) {
	after := group(t, command.Epoch{Term: 4, Origin: 40, Seq: 1})
	after.Epochs.Before = []command.Epoch{{Term: 3, Origin: 30, Seq: 1, First: 6}}
	require.Equal(t, []shape{{kept: 1, dropped: 2, steps: removals}, {steps: removals}},
		plan(t, group(t, old, put(20, 5, 5), put(20, 6, 6), put(20, 7, 7)), after))
	// So it does of a rendezvous that it would have completed.
	require.Equal(t, []shape{{kept: 0, dropped: 2, steps: removals}, {steps: removals}},
		plan(t, group(t, old, put(20, 4, 4, 0, 1), put(20, 5, 5)), after))
}

// Stamp 6 was given to an entry of group 2, which was lost with its leader. The next leader gives it again, behind what
// had been committed with the stamp that would have been next.
func TestAnEntryThatTakesNoStampRepeatsNone(t *testing.T) {
	committed := grant(20, 7, 6, 0, 1)
	require.Equal(t, []shape{{kept: 3, steps: removals}, {kept: 2, steps: removals}, {kept: 0, steps: removals}},
		plan(t, group(t, old, committed, barrier(3, 30, 1), put(30, 6, 2)), group(t, old, committed, put(20, 5, 5)), group(t, old)))
}

// A cluster at the first level has no epochs in its files. Here the cut was taken after the
// barrier in group 0 and before it in group 1, so only group 1's log shows it.
func TestNothingIsStaleInAnUnknownEpoch(t *testing.T) {
	unknown := command.Epoch{}
	require.Equal(t, []shape{{kept: 3, steps: removals}, {kept: 2, steps: removals}},
		plan(t, group(t, unknown, put(20, 6, 3), put(20, 7, 4), put(20, 8, 5)), group(t, unknown, barrier(3, 20, 1), put(20, 5, 2))))
	// A rendezvous of which group 1 has received nothing yet.
	require.Equal(t, []shape{{kept: 1, steps: removals}, {kept: 2, completed: []uint64{3}, steps: removals}},
		plan(t, group(t, unknown, put(20, 6, 3, 0, 1)), group(t, unknown, barrier(3, 20, 1), put(20, 5, 2))))
	// Barriers of the first release have no term.
	require.Equal(t, []shape{{kept: 2, steps: removals}, {kept: 2, steps: removals}},
		plan(t, group(t, unknown, barrier(0, 20, 1), put(20, 6, 3)), group(t, unknown, barrier(3, 30, 1), put(30, 5, 2))))
}

// A leader completes what it finds before it stamps.
func TestARendezvousThatALaterLeaderHasNotCompletedIsNotCommitted(t *testing.T) {
	stale := []made{put(20, 4, 4), put(20, 5, 5, 0, 1), put(20, 5, 6)}
	require.Equal(t, []shape{{kept: 1, dropped: 2, steps: removals}, {kept: 2, steps: removals}},
		plan(t, group(t, old, stale...), group(t, old, barrier(3, 30, 1), put(30, 7, 2))))
	// This one has.
	require.Equal(t, []shape{{kept: 3, steps: removals}, {kept: 3, steps: removals}},
		plan(t, group(t, old, stale...), group(t, old, barrier(3, 30, 1), put(20, 5, 5, 0, 1), put(30, 7, 2))))
	// This one has not stamped.
	require.Equal(t, []shape{{kept: 3, steps: removals}, {kept: 1, completed: []uint64{5}, steps: removals}},
		plan(t, group(t, old, stale...), group(t, old, barrier(3, 30, 1))))
	// The one that has gone on is the stale one.
	require.Equal(t, []shape{{kept: 2, completed: []uint64{2}, steps: removals}, {kept: 0, dropped: 1, steps: removals}},
		plan(t, group(t, old, barrier(3, 30, 1), put(30, 6, 3)), group(t, old, put(20, 7, 5, 1)), group(t, old, barrier(3, 30, 1), put(30, 5, 2, 0, 2)))[:2])
}

// The groups follow a change of members, one has, and there is a learner in the other.
func TestStepsFollowFromEachLog(t *testing.T) {
	learner := membership.Step{Kind: membership.AddNonvoter, ID: 4, Generation: 1}
	g := []Group{group(t, old), group(t, old, step(learner))}
	require.Equal(t, []shape{{steps: removals}, {kept: 1, steps: append(removals, "remove 4")}}, plan(t, g...))
	g[0].Config = &membership.Config{Voters: []uint64{2, 3}, Learners: []uint64{1}}
	require.Equal(t, []string{"add voter 1", "remove 2", "remove 3"}, plan(t, g...)[0].steps)
}

func TestNothingChangesForAMemberThatIsAlone(t *testing.T) {
	lone := group(t, command.Epoch{}, put(20, 0, 5))
	lone.Config = membership.Initial(membership.OfIDs(1))
	list := membership.OfIDs(1)
	repairs, _, err := Plan(self, list, []Group{lone}, forcing)
	require.NoError(t, err)
	require.Nil(t, repairs)
	// A step may need a server that is gone.
	two := group(t, command.Epoch{}, step(membership.Step{Kind: membership.RemoveServer, ID: 2}))
	two.Config = membership.Initial(membership.OfIDs(1, 2))
	repairs, _, err = Plan(self, list, []Group{two}, forcing)
	require.NoError(t, err)
	require.Len(t, repairs, 1)
	// The log may have another member in store.
	change := membership.Change{Op: membership.Add, Member: &pb.Member{ID: 2}}
	body, err := change.Encode()
	require.NoError(t, err)
	lone.Tail = tail(t, made{entry: command.Entry{Origin: 20, Seq: 6, Parts: 1, Commands: []command.Command{{Kind: command.MemberChange, Body: body}}}})
	repairs, _, err = Plan(self, list, []Group{lone}, forcing)
	require.NoError(t, err)
	require.Len(t, repairs, 1)
}

func TestAnEntryOfANewerVersionIsRefused(t *testing.T) {
	g := group(t, old)
	g.Tail = []*raftpb.Entry{{Index: new(uint64(11)), Term: new(uint64(3)), Data: []byte{99}}}
	_, _, err := Plan(self, membership.OfIDs(1, 2, 3), []Group{g}, forcing)
	require.ErrorContains(t, err, "entry 11 of group 0")
}

// repaired are the groups with the logs that come out of a plan.
func repaired(t *testing.T, groups ...Group) []Group {
	t.Helper()
	repairs, _, err := Plan(self, membership.OfIDs(1, 2, 3), groups, forcing)
	require.NoError(t, err)
	for p, r := range repairs {
		g := &groups[p]
		g.Tail = append(g.Tail[:r.Entries[0].GetIndex()-11], r.Entries...)
		g.Term = g.Tail[len(g.Tail)-1].GetTerm()
	}
	return groups
}

// write lets the member go on as a cluster of its own: the next epoch's barrier, in the next
// term, and a write in each group.
func write(t *testing.T, stamp int64, groups []Group) {
	t.Helper()
	term := groups[0].Term + 1
	for p := range groups {
		g := &groups[p]
		for _, m := range []made{barrier(term, 40, 1), put(40, stamp+int64(p), uint64(2+p))} {
			g.Tail = append(g.Tail, &raftpb.Entry{
				Index: new(uint64(11 + len(g.Tail))), Term: new(g.Term + 1), Type: new(raftpb.EntryNormal), Data: m.entry.AppendTo(nil),
			})
		}
		g.Term++
	}
}

// The member dies before its state has what a plan has put into the logs, after it has written
// something as a cluster of its own, and is forced again. Group 1 had not begun the epoch of
// which group 0 has stamps.
func TestWhatWasCompletedIsNotStale(t *testing.T) {
	groups := repaired(t,
		group(t, old, barrier(3, 30, 1), put(30, 6, 2), put(30, 7, 3, 0, 1)),
		group(t, old, put(20, 5, 5)))
	write(t, 20, groups)
	for p, s := range plan(t, groups...) {
		require.Equal(t, len(groups[p].Tail), s.kept, "group %d", p)
		require.Empty(t, s.completed)
		require.Empty(t, s.steps)
	}
}

// The leader of term 9 of group 0 has stamped in group 1, and died before this member had
// heard from it in group 0.
func TestAPlanIsLaterThanEveryEpoch(t *testing.T) {
	groups := repaired(t, group(t, old), group(t, old, barrier(9, 30, 1), put(30, 6, 2)))
	require.EqualValues(t, 10, groups[0].Term)
	write(t, 20, groups)
	for p, s := range plan(t, groups...) {
		require.Equal(t, len(groups[p].Tail), s.kept, "group %d", p)
	}
}
