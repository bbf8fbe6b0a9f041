//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/version"
)

// What came with the levels above the first.

const newest = int(version.Newest)

var raise = membership.VersionChange{Op: membership.Raise, From: 1, To: 2}

func announcement(t *testing.T) []byte {
	a := membership.Announcement{Member: &pb.Member{ID: 1, Name: "one", ClientURLs: []string{"http://one:2379"}}, Release: "0.2.0"}
	b, err := a.Encode()
	require.NoError(t, err)
	return b
}

// later are the commands that a level added.
func later(t *testing.T, level int) (list []command.Command) {
	if level >= 2 {
		lower, cancel := membership.VersionChange{Op: membership.Downgrade, To: 1}, membership.VersionChange{Op: membership.Cancel}
		list = append(list,
			command.Command{Kind: command.ClusterVersion, Body: raise.Encode()},
			command.Command{Kind: command.ClusterVersion, Body: lower.Encode()},
			command.Command{Kind: command.ClusterVersion, Body: cancel.Encode()},
			command.Command{Kind: command.MemberAnnounce, Body: announcement(t)})
		reset := membership.Change{Op: membership.Reset, Member: &pb.Member{ID: 1, Name: "one", PeerURLs: []string{"http://one:2380"}}}
		b, err := reset.Encode()
		require.NoError(t, err)
		list = append(list, command.Command{Kind: command.MemberChange, Body: b})
	}
	if level >= levelOfSlots {
		for _, w := range wishes() {
			list = append(list, command.Command{Kind: command.Place, User: 7, Body: w.AppendTo(nil)})
		}
	}
	if level >= levelOfResizing {
		list = append(list, command.Command{Kind: command.Resize, User: 7, Body: command.AppendResize(nil, 300)})
	}
	if level >= 5 {
		drain := command.Wish{Op: command.Drain, Partition: 3}
		list = append(list, command.Command{Kind: command.Place, User: 7, Body: drain.AppendTo(nil)})
	}
	if level >= levelOfChecks {
		list = append(list,
			command.Command{Kind: command.Check, Body: check.AppendVersion(nil)},
			command.Command{Kind: command.Verdict, Body: verdict().AppendTo(nil)})
	}
	if level >= levelOfMeantLeases {
		further := &pb.LeaseRevokeRequest{ID: 77}
		apply.Further(further)
		list = append(list,
			command.Command{Kind: command.LeaseRevoke, Body: marshal(t, further)},
			command.Command{Kind: command.LeaseRevoke, User: auth.Own, Body: marshal(t, apply.Revocation(lease.Over{ID: 77, Number: 300}))},
			command.Command{Kind: command.LeaseCheckpoint, User: auth.Own, Body: marshal(t, apply.Checkpoints([]lease.Checkpoint{{ID: 77, Remaining: 20, Number: 300}}))})
	}
	return list
}

const levelOfChecks = 6

// levelOfMeantLeases is the level from which on leases have numbers.
const levelOfMeantLeases = 7

func verdict() *check.Verdict {
	v := &check.Verdict{Version: check.Version, Place: check.Place{Group: 4, Term: 300, Index: 70_000}, Agree: []uint64{1, 1 << 60}}
	for i := range v.Digest {
		v.Digest[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	return v
}

// laterMessages are those that a level added, or to which it added fields.
func laterMessages(level int) (list []message) {
	if level >= 2 {
		list = append(list, message{"introduction with levels", &peerpb.Introduction{
			Protocol: 1, Cluster: 0xc1, From: 1, To: 2, OldestLevel: 1, NewestLevel: 2, ClusterLevel: 2, Refusal: peerpb.Refusal_OTHER_VERSION,
		}})
	}
	if level >= levelOfResizing {
		list = append(list, resizingMessages()...)
	}
	return list
}

// reach brings a new cluster to a level.
func (s *state) reach(level int) {
	if level >= 2 {
		s.system(command.ClusterVersion, raise.Encode())
		s.system(command.MemberAnnounce, announcement(s.t))
		for p := range s.stores {
			s.index[p]++
			s.machine.Open(p, s.index[p], 2, command.Epoch{Term: 2, Origin: 7, Seq: 1})
		}
	}
	for l := 3; l <= level; l++ {
		next := membership.VersionChange{Op: membership.Raise, From: version.Level(l - 1), To: version.Level(l)}
		s.system(command.ClusterVersion, next.Encode())
	}
}

// cutEpochs adds the epochs to a cut.
func (s *state) cutEpochs(cut *backend.System) {
	recovery.CutEpochs(cut, make([]command.Epochs, len(s.stores)), recovery.StoredEpochs(s.machine.Epochs(), s.machine.Level()))
}

// requireLevel checks what a level added to the state.
func requireLevel(t *testing.T, level int, list *membership.List) {
	require.Equal(t, version.Level(level), list.Level)
	if level >= 2 {
		require.Equal(t, "0.2.0", list.Releases[1])
	} else {
		require.Empty(t, list.Releases)
	}
}

// A file of the first level says nothing of epochs. It is read as it is, has none either while
// the cluster stays at its level, and gets them with the next one.
func TestAFileWithoutEpochs(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		if level > 1 {
			return
		}
		for _, name := range stateFilesOf(level) {
			path := unpack(t, read(name+".db.gz"))
			s := openGolden(t, path)
			none := make([]command.Epochs, len(s.stores))
			require.Equal(t, none, s.machine.Epochs())
			for p := range s.stores {
				s.index[p]++
				s.machine.Open(p, s.index[p], 2, command.Epoch{Term: 2, Origin: 7, Seq: 1})
			}
			s.flush()
			require.NoError(t, s.be.Close())
			require.False(t, strings.Contains(dump(t, path), "epochs"), name)

			s = openGolden(t, path)
			require.Equal(t, none, s.machine.Epochs())
			s.reach(newest)
			s.flush()
			now := s.machine.Epochs()
			require.NoError(t, s.be.Close())
			require.NotEqual(t, none, now)
			require.Equal(t, now, openGolden(t, path).machine.Epochs(), name)
		}
	})
}
