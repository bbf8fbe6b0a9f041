package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// cutOff is a member that others don't reach: it answers what it can alone, and nothing that needs a quorum.
type cutOff struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
}

func (m cutOff) register(g *grpc.Server) {
	pb.RegisterKVServer(g, m)
	pb.RegisterLeaseServer(g, m)
}

func (cutOff) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if q.Serializable {
		return answerAt(9), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (cutOff) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, rpctypes.ErrGRPCNoLeader
}

// Who keeps mirrors up to date, carries out commands, or sends some, or needs leases alone, has a member left that needs the others and doesn't reach
// them: these do nothing else by which it would be.
func TestWorkersLeaveAMemberThatIsCutOff(t *testing.T) {
	for what, begin := range map[string]func(context.Context, *Client){
		"mirrors":  func(ctx context.Context, c *Client) { _ = c.Mirror(ctx, MirrorOptions{}) },
		"executor": func(ctx context.Context, c *Client) { _ = c.CarryOut(ctx, CarryOutOptions{Sets: [][]string{{"one"}}}) },
		"leases":   func(ctx context.Context, c *Client) { _, _ = c.Grant(ctx, 10) },
		"transactions": func(ctx context.Context, c *Client) {
			_, _ = c.shared.locker.lease(ctx, c.shared.clusters[0])
		},
		"commands": func(_ context.Context, c *Client) {
			q, err := c.Commands("one")
			require.NoError(t, err)
			q.Send(clientv3.OpPut("/a", ""))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, err := New(Config{
				Clusters: map[string]Cluster{
					"one": {Endpoints: []string{serve(t, cutOff{}.register), serveKV(t, comparing{})}, Kind: Etcd},
					"two": {Endpoints: []string{serve(t, func(*grpc.Server) {})}, Kind: Etcd}, // where nothing can be done
				},
				Routes: []Route{{Prefix: "/a", Cluster: "one", Mirrors: []string{"two"}}}, Timeout: 300 * time.Millisecond,
			})
			require.NoError(t, err)
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go begin(ctx, c)
			moves := &c.shared.clusters[0].moves
			require.Eventually(t, func() bool { return moves.Load() > 0 }, 30*time.Second, 20*time.Millisecond)
		})
	}
}

// A member that was left because it is cut off from the others isn't returned to before it reaches them, though it answers reads that it can serve alone;
// unless those that were gone to do no better.
func TestReturnToAMember(t *testing.T) {
	for _, one := range []struct {
		other   func(*grpc.Server)
		returns bool
	}{
		{func(g *grpc.Server) { pb.RegisterKVServer(g, comparing{}) }, false},
		{cutOff{}.register, true},
	} {
		c, err := New(Config{
			Clusters: map[string]Cluster{"one": {Endpoints: []string{serve(t, cutOff{}.register), serve(t, one.other)}, Kind: Etcd}},
			Routes:   []Route{{Cluster: "one"}}, DialTimeout: 300 * time.Millisecond,
		})
		require.NoError(t, err)
		defer c.Close()
		of := c.shared.clusters[0]
		_, err = of.dial(t.Context())
		require.NoError(t, err)
		of.leave()
		of.comeBack()
		of.mu.Lock()
		returned := of.away == nil
		of.mu.Unlock()
		require.Equal(t, one.returns, returned)
	}
}
