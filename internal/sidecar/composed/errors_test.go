package composed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// silent is a member that doesn't answer.
type silent struct {
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
}

func (silent) LeaseGrant(ctx context.Context, _ *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A cluster that doesn't answer is unavailable, by its name. A client's own deadline is that.
func TestSilentCluster(t *testing.T) {
	client := pb.NewLeaseClient(sidecarWithin(t, silent{}, 100*time.Millisecond))
	_, err := client.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{TTL: 5})
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	require.ErrorContains(t, err, `cluster "a"`)

	left := &compose.ClusterError{Cluster: "a", Err: context.DeadlineExceeded}
	require.Equal(t, codes.DeadlineExceeded, status.Code(asStatus(fmt.Errorf("a call: %w", left))))
}
