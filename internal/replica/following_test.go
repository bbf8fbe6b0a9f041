package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
)

// A rendezvous that was kept back while groups followed a change of members comes before one that is submitted later: leaders
// of leases rely on that for checkpoints and their resets.
func TestRendezvousKeepTheirPlace(t *testing.T) {
	s := leading(t, 1)
	r := s.replicas[0]
	submit := func(kind command.Kind, req proto.Message) {
		body, err := proto.Marshal(req)
		require.NoError(t, err)
		r.Submit(&Write{Command: command.Command{Kind: kind, Body: body}, Parts: r.all(), System: true, Epoch: r.seq.Epoch(),
			Done: func(out Outcome) { require.NoError(t, out.Err) }})
		s.work(r, -1)
	}
	checkpoint := func(remaining int64) *pb.LeaseCheckpointRequest {
		return &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 7, Remaining_TTL: remaining}}}
	}
	submit(command.LeaseGrant, &pb.LeaseGrantRequest{ID: 7, TTL: 60})
	r.following.set(true)
	submit(command.LeaseCheckpoint, checkpoint(5))
	// As leadership.hold(false), whose effect another goroutine is faster than.
	r.following.set(false)
	submit(command.LeaseCheckpoint, checkpoint(0)) // of a renewal
	r.resubmit(r.following.release(r.stampAlone))
	for range 2 { // the groups meet twice
		s.work(r, -1)
	}
	l, ok := r.cfg.Machine.Leases.Get(7)
	require.True(t, ok)
	require.Zero(t, l.Remaining, "the renewal was acknowledged: another leader may not shorten the lease")
}
