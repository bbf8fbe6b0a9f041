package compose

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// A member is left if it keeps silent, not because those who have asked it have gone.
func TestMembersAreNotLeftByThoseWhoGo(t *testing.T) {
	asked := make(chan struct{}, 1)
	of := func(register func(*grpc.Server)) *Client { return ofMembers(t, 0, register, register) }
	for what, leaves := range map[string]func() *Client{
		"a fork with a watch": func() *Client {
			c := of(func(g *grpc.Server) { pb.RegisterWatchServer(g, searching{takes: time.Hour}) })
			fork := c.Fork()
			watch := fork.Watch(t.Context(), "k", clientv3.WithRev(5), clientv3.WithCreatedNotify())
			r := <-watch
			require.True(t, r.Created)
			require.NoError(t, fork.Close())
			r = <-watch
			require.ErrorIs(t, r.Err(), ErrClosed)
			return c
		},
		"a session that keeps its lease alive": func() *Client {
			c := of(func(g *grpc.Server) { pb.RegisterLeaseServer(g, unanswered{asked: asked}) })
			s, err := c.Session(t.Context(), WithTTL(time.Second))
			require.NoError(t, err)
			<-asked
			_ = s.Close(t.Context())
			return c
		},
		"the caller of a transaction": func() *Client {
			c := of(func(g *grpc.Server) {
				pb.RegisterKVServer(g, unansweredToo{guarding{readable: []string{commit.Prefix}}, asked})
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			answers := c.shared.locker.send(ctx, []commit.Request{{Step: commit.Look, Cluster: 7}})
			require.Error(t, answers[0].Err)
			return c
		},
	} {
		t.Run(what, func(t *testing.T) { require.Zero(t, leaves().shared.clusters[0].moves.Load()) })
	}
}

// unanswered is a member that doesn't confirm leases.
type unanswered struct {
	granting
	asked chan struct{}
}

func (u unanswered) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	u.asked <- struct{}{}
	<-st.Context().Done()
	return st.Context().Err()
}

// unansweredToo is one that answers no transactions.
type unansweredToo struct {
	guarding
	asked chan struct{}
}

func (u unansweredToo) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	u.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Who leaves a read over several clusters is told which of them has not answered, as for any other read.
func TestLeavingAReadOverClusters(t *testing.T) {
	for _, waits := range []string{"a", "b"} {
		clusters := map[string]Cluster{"a": silent("127.0.0.1:1"), "b": silent("127.0.0.1:1")}
		if waits == "b" {
			clusters["a"] = Cluster{Endpoints: []string{serveKV(t, guarding{readable: []string{"/a/"}})}, Kind: Etcd}
		}
		c, err := New(Config{
			Clusters: clusters, Routes: []Route{{Prefix: "/a/", Cluster: "a"}, {Prefix: "/b/", Cluster: "b"}},
			SpanRanges: true, Timeout: time.Minute,
		})
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = c.Get(ctx, "/a/", clientv3.WithRange("/c/"))
		var of *ClusterError
		require.ErrorAs(t, err, &of)
		require.Equal(t, waits, of.Cluster)
		require.False(t, of.Unknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}
