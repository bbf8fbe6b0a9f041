package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A leader that can't commit must not pile up writes without end, nor must a
// server that knows of no leader.
func TestWritesThatWaitAreBounded(t *testing.T) {
	for _, leads := range []bool{true, false} {
		s := newStory(t, 3)
		if leads {
			s.elect(s.replicas[0])
			s.dead[2], s.dead[3] = true, true
		}
		for _, parts := range []placement.Set{placement.Of(0), placement.Of(0) | placement.Of(1)} {
			refused := fill(t, s.replicas[0], parts, 3*maxPendingWrites)
			require.Positive(t, refused)
		}
		s.replicas[0].Stop(fault.Stopped)
	}
}

// Nor must one that keeps writes of several partitions back while the groups follow a change of members, which takes long if one of
// them can't commit.
func TestWritesThatWaitForAChangeOfMembersAreBounded(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	s.replicas[0].following.set(true)
	require.Equal(t, maxPendingWrites, fill(t, s.replicas[0], placement.Of(0)|placement.Of(1), 2*maxPendingWrites))
	s.replicas[0].Stop(fault.Stopped)
}

// fill submits writes and returns how many were refused at once.
func fill(t *testing.T, r *Replica, parts placement.Set, n int) (refused int) {
	body, err := proto.Marshal(&pb.DeleteRangeRequest{Key: []byte("d")})
	require.NoError(t, err)
	for range n {
		r.Submit(&Write{
			Command: command.Command{Kind: command.DeleteRange, Body: body}, Parts: parts,
			Done: func(out Outcome) {
				if out.Err != nil && fault.CodeOf(out.Err) == fault.TooManyRequests.Code() {
					refused++
				}
			},
		})
	}
	return refused
}
