package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Transactions that only delete, as Kubernetes does, are carried out and raise no alarm without any room:
// it is they who make some.
func TestTransactionsThatDeleteNeedNoSpace(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.QuotaBytes = 1 })
	n, key := c.nodes[0], []byte("/a/k")
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
	}
	_, err := n.Txn(t.Context(), r)
	require.NoError(t, err)
	_, err = written(t.Context(), n, r)
	require.NoError(t, err)
	require.Empty(t, c.alarms())
	r.Failure = append(r.Failure, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}})
	_, err = n.Txn(t.Context(), r)
	require.ErrorIs(t, err, fault.NoSpace)
	require.Len(t, c.alarms(), 1)
}

func (c *cluster) alarms() []*pb.AlarmMember {
	resp, err := c.nodes[0].Alarm(c.t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	require.NoError(c.t, err)
	return resp.Alarms
}

// A session's writes raise the alarm when the file has reached its quota, and from then
// on the log refuses them.
func TestSessionRaisesNoSpace(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.QuotaBytes = 1 << 20 })
	s := newSessionClient(c, 0)
	s.open(0)
	defer func() { s.handle.Close() }()
	value := strings.Repeat("x", 100<<10)
	require.Eventually(t, func() bool {
		s.send(askPut("/a/k", value))
		s.waitForReplies(0)
		s.mu.Lock()
		defer s.mu.Unlock()
		err := s.replies[len(s.replies)-1].err
		if err != nil {
			require.ErrorIs(t, err, fault.NoSpace)
		}
		return err != nil
	}, 20*time.Second, time.Millisecond)
	require.Len(t, c.alarms(), 1)
	require.Equal(t, pb.AlarmType_NOSPACE, c.alarms()[0].Alarm)
}
