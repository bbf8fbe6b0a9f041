package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

func keep(id, remaining int64) proto.Message {
	return &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: id, Remaining_TTL: remaining}}}
}

// TestDigest: two replicas with the same log have the same digest, and one that differs in
// anything that is digested has another one, of that part.
func TestDigest(t *testing.T) {
	grown := func() *rig {
		r := newRig(2)
		r.apply(2, opening{&pb.LeaseGrantRequest{ID: 5, TTL: 60}})
		r.apply(2, &pb.LeaseGrantRequest{ID: 6, TTL: 60})
		r.apply(2, &pb.PutRequest{Key: []byte("/a/k"), Value: []byte("v"), Lease: 6})
		return r
	}
	require.Equal(t, grown().Digest(), grown().Digest())
	for _, tc := range []struct {
		differs string
		how     func(r *rig)
	}{
		{"keys", func(r *rig) {
			s := r.Stores[r.Placement().Partition([]byte("/a/k"))]
			rev := s.Rev()
			s.Put(store.Revision{Main: rev, Sub: 1}, []byte("/a/k"), []byte("w"), 6)
		}},
		{"leases", func(r *rig) { r.apply(3, keep(6, 20)) }},
		{"leases", func(r *rig) { r.Leases.Load(lease.Lease{ID: 6, TTL: 60, Owner: 3}) }},
		{"leases", func(r *rig) { r.apply(3, &pb.LeaseGrantRequest{ID: 7, TTL: 60}) }},
		{"sessions", func(r *rig) { r.sessions[1].byID[5].last++ }},
		{"sessions", func(r *rig) { r.sessions[0].open(8) }},
		{"revisions", func(r *rig) { r.Stores[0].SetRev(9) }},
		{"revisions", func(r *rig) { r.apply(3, &pb.CompactionRequest{Revision: 2}) }},
		{"alarms", func(r *rig) {
			r.apply(3, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 3, Alarm: pb.AlarmType_NOSPACE})
		}},
		{"members", func(r *rig) { r.LoadMembership(membership.Of(&pb.Member{ID: 9}), nil) }},
		{"placement", func(r *rig) {
			r.placed.Store(placement.New(2).WithRules([]placement.Rule{{Key: "/a/b/c/", Slot: 3}}))
		}},
	} {
		same, other := grown(), grown()
		tc.how(other)
		require.Equal(t, tc.differs, same.Digest().Differing(other.Digest()))
	}
	require.NotEqual(t, check.Digest{}, grown().Digest())
}

// What version 1 computes must not change: members of several releases compare it.
func TestDigestOfVersion1(t *testing.T) {
	r := newRig(2)
	r.apply(2, opening{&pb.LeaseGrantRequest{ID: 5, TTL: 60}})
	r.apply(2, &pb.LeaseGrantRequest{ID: 6, TTL: 60})
	r.apply(2, &pb.PutRequest{Key: []byte("/a/k"), Value: []byte("v"), Lease: 6})
	r.apply(3, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 3, Alarm: pb.AlarmType_NOSPACE})
	r.LoadMembership(membership.Of(&pb.Member{ID: 9, Name: "a", PeerURLs: []string{"http://a:2380"}}), nil)
	require.Equal(t, check.Digest{
		0xa6b9add777316bc, 0x9fb0e37a5696ddd6, 0x6685022da18e247e, 0x37ca30aa999a7982,
		0x2d5a493c42cd0ad0, 0xb96edfd0d10be540, 0x789361dc931731e2, 0xf9b996eca9beedc2,
	}, r.Digest())
}

// Numbers of leases count once all members know them: below, those of a backup may be known to some alone.
func TestDigestOfNumbersFollowsTheVersion(t *testing.T) {
	for level, differs := range map[version.Level]string{levelOfMeantLeases - 1: "", levelOfMeantLeases: "leases"} {
		r, other := newRig(2), newRig(2)
		for _, r := range []*rig{r, other} {
			list := membership.OfIDs(1)
			list.Level = level
			r.LoadMembership(list, nil)
		}
		r.Leases.Load(lease.Lease{ID: 6, TTL: 60, Number: 3})
		other.Leases.Load(lease.Lease{ID: 6, TTL: 60, Number: 4})
		require.Equal(t, differs, r.Digest().Differing(other.Digest()), "level %d", level)
	}
}

// A member that was restarted below level 2 doesn't know the epoch, nor does one that has taken in a
// snapshot of such a one; level 6 may come before another epoch does.
func TestDigestHasNoEpochs(t *testing.T) {
	knows, restarted := newRig(2), newRig(2)
	for p := range knows.Stores {
		knows.Open(p, 1, 1, command.Epoch{Term: 2, Origin: 7, Seq: 1})
		restarted.Skip(p, 1, 1)
	}
	require.Equal(t, knows.Digest(), restarted.Digest())
}

// A store that was loaded is at least at the compacted revision, one that has run on since may be
// below it.
func TestDigestAfterARestart(t *testing.T) {
	runs, loaded := newRig(2), newRig(2)
	for _, r := range []*rig{runs, loaded} {
		r.apply(2, &pb.PutRequest{Key: []byte("/a/k"), Value: []byte("v")})
		r.apply(9, &pb.PutRequest{Key: []byte("/a/k"), Value: []byte("w")})
		r.apply(10, &pb.CompactionRequest{Revision: 9})
	}
	for _, s := range loaded.Stores {
		s.SetRev(s.Compacted())
	}
	require.Equal(t, runs.Digest(), loaded.Digest())
}

// BenchmarkDigest is how long all partitions stand still for a check.
func BenchmarkDigest(b *testing.B) {
	for _, n := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("leases and sessions=%d", n), func(b *testing.B) {
			r := newRig(4)
			for i := range int64(n) {
				r.Leases.Load(lease.Lease{ID: i + 1, TTL: 60})
				r.sessions[i%4].open(i + 1)
			}
			for b.Loop() {
				r.Digest()
			}
		})
	}
}
