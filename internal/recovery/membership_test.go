package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/store"
)

// The list and the configurations are of one cut, also between the steps of a change.
func TestMembershipIsOfTheCut(t *testing.T) {
	b := backend.NewMem(backend.Identity{Cluster: 7, Server: 1, Partitions: 2})
	meta, err := b.Meta()
	require.NoError(t, err)
	now, err := ReadMembership(&meta, membership.OfIDs(1, 2))
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2}, now.Configs[1].Voters)

	next, err := now.List.Next(membership.Change{Op: membership.AddLearner, Member: &pb.Member{ID: 3, PeerURLs: []string{"http://c:1"}}, MaxLearners: 1})
	require.NoError(t, err)
	now.List = next
	step, needed := membership.StepOf(next, now.Configs[1])
	require.True(t, needed)
	now.Configs[1], _ = now.Configs[1].Next(step)
	now.List, err = now.List.Publish(1, "one", []string{"http://a:2"})
	require.NoError(t, err)

	cut := &backend.Cut{Partitions: make([]store.Cut, 2)}
	now.Cut(&cut.System)
	require.NoError(t, b.Flush(cut))
	meta, err = b.Meta()
	require.NoError(t, err)
	back, err := ReadMembership(&meta, membership.OfIDs(9))
	require.NoError(t, err)
	require.Equal(t, now.List.String(), back.List.String())
	require.EqualValues(t, 1, back.List.Generation)
	require.Equal(t, now.Configs, back.Configs)
	require.False(t, membership.Settled(back.List, back.Configs))

	meta.Blobs[membershipBlob] = []byte(`{"groups":[{}]}`)
	_, err = ReadMembership(&meta, membership.Of())
	require.ErrorIs(t, err, backend.ErrDamaged)
	meta.Blobs[membershipBlob] = []byte(`{`)
	_, err = ReadMembership(&meta, membership.Of())
	require.ErrorIs(t, err, backend.ErrDamaged)
}
