package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

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
	resp, err := c.nodes[0].Alarm(context.Background(), &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	require.NoError(t, err)
	require.Len(t, resp.Alarms, 1)
	require.Equal(t, pb.AlarmType_NOSPACE, resp.Alarms[0].Alarm)
}
