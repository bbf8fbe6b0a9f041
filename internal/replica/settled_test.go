package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/wal"
)

// stalled is a disk that keeps the appends of groups waiting which have let a member go, as one that
// stands still then.
type stalled struct {
	lets func(group int) bool // a member go
	on   bool
	held []func()
}

func (d *stalled) Append(group int, _ []wal.Record, durable func()) {
	switch {
	case durable == nil:
	case d.on && d.lets(group):
		d.held = append(d.held, durable)
	default:
		durable()
	}
}

func (d *stalled) goOn() {
	d.on = false
	for _, durable := range d.held {
		durable()
	}
	d.held = nil
}

// The removed one of two members hears that all groups have let it go, and ends, only when the
// other one's disk has the seals: that would come back with both in a group's configuration otherwise,
// and wait for its vote.
func TestAMemberIsLetGoWhenItsRemovalIsSealed(t *testing.T) {
	s := newStory(t, 2)
	leader, leaves := s.replicas[0], s.replicas[1]
	disk := &stalled{lets: func(group int) bool { return leader.cfg.Machine.Configuration(group).Unsealed != 0 }}
	leader.cfg.Disk = disk
	s.elect(leader)
	disk.on = true

	change := membership.Change{Op: membership.Remove, Member: &pb.Member{ID: 2}}
	body, err := change.Encode()
	require.NoError(t, err)
	removed, settled := false, false
	leader.Submit(&Write{
		Command: command.Command{Kind: command.MemberChange, Body: body}, Parts: leader.cfg.Machine.Placement().All(), System: true,
		Done: func(out Outcome) {
			require.NoError(t, out.Err)
			removed = true
		},
	})
	for range 20 {
		s.quiesce()
		leader.Tick()
	}
	s.quiesce()
	require.True(t, removed)
	generation := leader.cfg.Machine.Membership().Generation
	require.True(t, membership.Settled(leader.cfg.Machine.Membership(), leader.cfg.Machine.Configurations()))
	leader.AwaitSettled(generation, func(err error) {
		require.NoError(t, err)
		settled = true
	})
	require.NotEmpty(t, disk.held)
	require.Zero(t, leaves.Settled())
	require.False(t, settled)
	require.Contains(t, leader.Peers(), uint64(2))

	disk.goOn()
	s.quiesce()
	require.Equal(t, generation, leaves.Settled())
	require.True(t, settled)
	require.NotContains(t, leader.Peers(), uint64(2))
}

// Who waits for a change to settle is answered also by a replica that has just been stopped, which doesn't tick any more.
func TestAStoppedReplicaWaitsForNoSettling(t *testing.T) {
	r := leading(t, 1).replicas[0]
	r.Stop(fault.TimeoutLeaderFail)
	var a answers
	r.AwaitSettled(r.Settled()+1, a.read)
	require.Equal(t, answers{1, fault.TimeoutLeaderFail}, a)
}
