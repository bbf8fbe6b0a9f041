package membership

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"
)

// TestChanges runs the stories in testdata:
//
//	new members=(1,2,3) groups=2   a cluster
//	add id=4 [url=http://a:1]      and so on: the change is decided
//	steps                          the groups make the steps that are due, and so on, until none is
//	step                           only those that are due now
func TestChanges(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var l *List
		var groups []*Config
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			step := func() bool {
				due := DueSteps(l, groups)
				for _, s := range due {
					var ok bool
					groups[s.Group], ok = groups[s.Group].Next(s.Step)
					require.True(t, ok)
					fmt.Fprintf(&out, "group %d: %v\n", s.Group, &s.Step)
				}
				return len(due) > 0
			}
			switch d.Cmd {
			case "new":
				var ids []uint64
				var n int
				d.ScanArgs(t, "members", &ids)
				d.ScanArgs(t, "groups", &n)
				l = OfIDs(ids...)
				groups = slices.Repeat([]*Config{Initial(l)}, n)
			case "step":
				step()
			case "steps":
				for step() {
				}
			default:
				c := Change{Op: opOf(t, d.Cmd), Member: &pb.Member{}, MaxLearners: 1}
				var url string
				d.ScanArgs(t, "id", &c.Member.ID)
				if d.MaybeScanArgs(t, "url", &url) {
					c.Member.PeerURLs = []string{url}
				}
				next, err := l.Next(c)
				if err != nil {
					return err.Error() + "\n"
				}
				l = next
			}
			fmt.Fprintf(&out, "generation %d, voters %d, learners %d, removed %d, settled: %v, sealed: %v\n",
				l.Generation, l.Voters(), l.ids(true), l.Removed, Settled(l, groups), Sealed(l, groups))
			return out.String()
		})
	})
}

func opOf(t *testing.T, name string) Op {
	for op := Add; op <= Update; op++ {
		if op.String() == name {
			return op
		}
	}
	t.Fatalf("unknown step %q", name)
	return 0
}

// Whatever is changed: each step changes one server, the voters of group 0 are always
// voters of all groups (M1), and in the end all groups have the list's members.
func TestGroupsFollowInAnyCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := OfIDs(1, 2, 3)
		groups := slices.Repeat([]*Config{Initial(l)}, rapid.IntRange(1, 5).Draw(t, "groups"))
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			next, err := l.Next(Change{
				Op: Op(rapid.IntRange(int(Add), int(Remove)).Draw(t, "op")), MaxLearners: 2,
				Member: &pb.Member{ID: rapid.Uint64Range(1, 7).Draw(t, "id")},
			})
			if err != nil {
				continue
			}
			require.Equal(t, l.Generation+1, next.Generation)
			for l = next; !Sealed(l, groups); {
				due := DueSteps(l, groups)
				require.NotEmpty(t, due, "nothing is due, and the groups have not followed")
				s := rapid.SampledFrom(due).Draw(t, "group")
				after, ok := groups[s.Group].Next(s.Step)
				require.True(t, ok)
				_, ok = after.Next(s.Step)
				require.False(t, ok, "a step that is proposed twice is made once")
				require.LessOrEqual(t, len(changed(groups[s.Group].servers(), after.servers())), 1)
				groups[s.Group] = after
				for _, id := range groups[0].Voters {
					for p, c := range groups {
						require.Contains(t, c.Voters, id, "group %d lacks a voter of group 0", p)
					}
				}
			}
			for _, c := range groups {
				require.True(t, slices.Equal(l.Voters(), c.Voters), c.Voters)
				require.True(t, slices.Equal(l.ids(true), c.Learners), c.Learners)
			}
		}
	})
}

// A group seals a change if and only if some majority of the voters after it is none of the voters before,
// in whose configuration it may have to elect a leader.
func TestChangesAreSealedWhereAMajorityCouldComeToNeedMore(t *testing.T) {
	for n := uint64(1); n <= 8; n++ {
		var before Config
		for id := range n {
			before.Voters = append(before.Voters, id+1)
		}
		for _, s := range []Step{{Kind: AddVoter, ID: n + 1}, {Kind: RemoveServer, ID: 1}, {Kind: AddVoter, ID: 1}, {Kind: AddNonvoter, ID: n + 1}} {
			after, ok := before.Next(s)
			require.True(t, ok)
			if len(after.Voters) == 0 {
				continue
			}
			more := false
			for set := range uint64(1) << (n + 2) {
				has := func(id uint64) bool { return set&(1<<id) != 0 && slices.Contains(after.Voters, id) }
				more = more || after.Quorum(has) && !before.Quorum(has)
			}
			_, sealed := after.seal()
			require.Equal(t, more, sealed, "%d voters, %v", n, &s)
		}
	}
}

func changed(a, b []uint64) (ids []uint64) {
	for _, id := range slices.Concat(a, b) {
		if slices.Contains(a, id) != slices.Contains(b, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestChangesAndStepsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Change{
			Op: Op(rapid.IntRange(int(Add), int(Update)).Draw(t, "op")), MaxLearners: rapid.IntRange(0, 9).Draw(t, "learners"),
			Member: &pb.Member{ID: rapid.Uint64().Draw(t, "id"), PeerURLs: []string{rapid.String().Draw(t, "url")}},
		}
		b, err := c.Encode()
		require.NoError(t, err)
		back, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, c.Op, back.Op)
		require.Equal(t, c.MaxLearners, back.MaxLearners)
		require.Equal(t, c.Member.String(), back.Member.String())

		s := Step{
			Kind: StepKind(rapid.IntRange(int(AddVoter), int(RemoveServer)).Draw(t, "kind")), ID: rapid.Uint64().Draw(t, "id"),
			Number: rapid.Uint64().Draw(t, "number"), Generation: rapid.Uint64().Draw(t, "generation"),
		}
		read, err := DecodeStep(s.Encode())
		require.NoError(t, err)
		require.Equal(t, s, read)
	})
}

// What is proposed can be decoded, whatever --max-learners is.
func TestAnyBoundOfLearnersIsEncoded(t *testing.T) {
	for given, want := range map[int]int{math.MinInt: 0, -1: 0, 0: 0, mostLearners: mostLearners, mostLearners + 1: mostLearners, math.MaxInt: mostLearners} {
		c := Change{Op: Add, Member: &pb.Member{ID: 7}, MaxLearners: given}
		b, err := c.Encode()
		require.NoError(t, err)
		back, err := Decode(b)
		require.NoError(t, err, given)
		require.Equal(t, want, back.MaxLearners, given)
	}
}

func FuzzDecode(f *testing.F) {
	c := Change{Op: AddLearner, Member: &pb.Member{ID: 7, PeerURLs: []string{"http://a:1"}}, MaxLearners: 1}
	b, err := c.Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add((&Step{Kind: RemoveServer, ID: 1 << 63, Number: 4, Generation: 5}).Encode())
	f.Add([]byte{9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Decode(b); err == nil {
			again, err := c.Encode()
			require.NoError(t, err)
			_, err = Decode(again)
			require.NoError(t, err)
		}
		if s, err := DecodeStep(b); err == nil {
			again, err := DecodeStep(s.Encode())
			require.NoError(t, err)
			require.Equal(t, s, again)
		}
	})
}
