package sidecar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
)

// TestManyCatchUp: of many watches that begin in the past few are at members at a time, and those
// whose clients don't read hold up no others; when these read, they get all.
func TestManyCatchUp(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := beside(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	value := strings.Repeat("x", 32<<10)
	const puts, watches = 48, 40 // 1.5 MiB: more than a sidecar keeps, or a window takes
	for i := range puts {
		_, err := cli.Put(ctx, fmt.Sprintf("/c/%02d", i), value)
		require.NoError(t, err)
	}
	history := func(conn *clientv3.Client) pb.Watch_WatchClient {
		stream, err := pb.NewWatchClient(conn.ActiveConnection()).Watch(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("/c/"), RangeEnd: []byte("/c0"), StartRevision: 1}}}))
		return stream
	}
	readAll := func(stream pb.Watch_WatchClient) {
		for n := 0; n < puts; {
			r, err := stream.Recv()
			require.NoError(t, err)
			for _, e := range r.Events {
				require.Equal(t, fmt.Sprintf("/c/%02d", n), string(e.Kv.Key))
				n++
			}
		}
	}
	// Its window stays as it is: one that gRPC lets grow with the round trips of a busy machine takes the whole of a watch.
	idle := dial(t, s.ClientURL, clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithStaticStreamWindowSize(64 << 10)}})
	var stuck []pb.Watch_WatchClient
	for range watches {
		stuck = append(stuck, history(idle))
	}
	require.EventuallyWithT(t, func(now *assert.CollectT) {
		assert.Greater(now, number(s, "stoa_sidecar_catching_up_watchers"), 32)
	}, limit, 10*time.Millisecond)
	for range 3 {
		readAll(history(cli))
	}
	require.LessOrEqual(t, watchersAt(c), 33, "32 that catch up, and the one that all follow")
	for _, stream := range stuck {
		readAll(stream)
	}
}
