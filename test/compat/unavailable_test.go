package compat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// While a leader doesn't answer, writes through another server are answered with Unavailable and one of etcd's
// texts, which say that they may have taken effect, whether or not they have; the client doesn't repeat them. Once there is
// another leader they are carried out.
func TestUnavailableMeansPerhaps(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		leader := e.leader()
		cli := e.client(e.Servers[(leader+1)%3].ClientURL)
		const limit = 20 * time.Second // a request may take seven, and so may the next one
		put := func(key string) error {
			_, err := cli.Put(e.ctx, e.root+key, "v")
			return err
		}
		require.NoError(t, put("before"))
		require.NoError(t, e.Servers[leader].Pause())
		refused := 0
		for began := time.Now(); ; refused++ {
			err := put("meanwhile")
			if err == nil {
				break
			}
			var known rpctypes.EtcdError
			require.ErrorAs(t, err, &known)
			require.Equal(t, codes.Unavailable, known.Code())
			require.Contains(t, []error{rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutDueToLeaderFail}, err)
			require.Less(t, time.Since(began), limit)
		}
		require.Positive(t, refused, "the first was sent to a leader that doesn't answer")
		require.NoError(t, put("after"))
		require.NoError(t, e.Servers[leader].Resume())

		require.NoError(t, put("resumed"))
		resp, err := cli.Get(e.ctx, e.root+"meanwhile")
		require.NoError(t, err)
		require.LessOrEqual(t, resp.Kvs[0].Version, int64(refused+1), "none took effect twice")
	})
}

// What the leader alone knows of leases is refused with etcd's text while there is none, once the time of a request is over.
func TestLeasesWithoutALeader(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		cli := e.client(e.Servers[0].ClientURL)
		lease, err := cli.Grant(e.ctx, 60)
		require.NoError(t, err)
		service := pb.NewLeaseClient(cli.ActiveConnection())
		renewals, err := service.LeaseKeepAlive(e.ctx)
		require.NoError(t, err)
		require.NoError(t, renewals.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)}))
		renewed, err := renewals.Recv()
		require.NoError(t, err)
		require.EqualValues(t, 60, renewed.TTL)

		require.NoError(t, e.Servers[1].Kill())
		require.NoError(t, e.Servers[2].Kill())
		require.Eventually(t, func() bool { // server 0 has stepped down
			st, err := cli.Status(e.ctx, e.Servers[0].ClientURL)
			return err == nil && st.Leader == 0
		}, time.Minute, 50*time.Millisecond)
		require.NoError(t, renewals.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)}))
		_, err = renewals.Recv()
		require.Equal(t, rpctypes.ErrNoLeader, rpctypes.Error(err))
		_, err = service.LeaseTimeToLive(e.ctx, &pb.LeaseTimeToLiveRequest{ID: int64(lease.ID)})
		require.Equal(t, rpctypes.ErrNoLeader, rpctypes.Error(err))
	})
}
