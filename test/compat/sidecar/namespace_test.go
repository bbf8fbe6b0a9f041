package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/test/process"
)

// TestNamespace: locks, elections, leases and watches behind --namespace are those of the namespace's
// keys. (test/compat/differential compares requests of keys with etcd's answers.)
func TestNamespace(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	direct := dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	for _, transport := range []string{"grpc-go", "own"} {
		s := beside(t, c, "sidecar-"+transport, "--grpc-transport="+transport, "--namespace=/"+transport+"/")
		inNamespace(t, direct, dial(t, s.ClientURL, clientv3.Config{}), "/"+transport+"/")
	}
}

func inNamespace(t *testing.T, direct, cli *clientv3.Client, prefix string) {
	ctx := soon(t)
	conn := cli.ActiveConnection()
	everything := cli.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithCreatedNotify())
	require.True(t, (<-everything).Created)

	lease, err := cli.Grant(ctx, 600)
	require.NoError(t, err)
	locked, err := lockpb.NewLockClient(conn).Lock(ctx, &lockpb.LockRequest{Name: []byte("lock"), Lease: int64(lease.ID)})
	require.NoError(t, err)
	require.Regexp(t, "^lock/", string(locked.Key))
	got, err := direct.Get(ctx, prefix+string(locked.Key))
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	_, err = direct.Put(ctx, "/elsewhere", "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	ttl, err := cli.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Equal(t, [][]byte{locked.Key}, ttl.Keys, "without keys of others")
	_, err = lockpb.NewLockClient(conn).Unlock(ctx, &lockpb.UnlockRequest{Key: locked.Key})
	require.NoError(t, err)

	election := lockpb.NewElectionClient(conn)
	won, err := election.Campaign(ctx, &lockpb.CampaignRequest{Name: []byte("e"), Lease: int64(lease.ID), Value: []byte("first")})
	require.NoError(t, err)
	require.Equal(t, "e", string(won.Leader.Name))
	observed, err := election.Observe(ctx, &lockpb.LeaderRequest{Name: []byte("e")})
	require.NoError(t, err)
	leader, err := observed.Recv()
	require.NoError(t, err)
	require.Equal(t, string(won.Leader.Key), string(leader.Kv.Key))
	_, err = election.Proclaim(ctx, &lockpb.ProclaimRequest{Leader: won.Leader, Value: []byte("second")})
	require.NoError(t, err)
	leader, err = election.Leader(ctx, &lockpb.LeaderRequest{Name: []byte("e")})
	require.NoError(t, err)
	require.Equal(t, "second", string(leader.Kv.Value))
	_, err = election.Resign(ctx, &lockpb.ResignRequest{Leader: won.Leader})
	require.NoError(t, err)

	session, err := concurrency.NewSession(cli)
	require.NoError(t, err)
	mutex := concurrency.NewMutex(session, "mutex")
	require.NoError(t, mutex.Lock(ctx))
	held := mutex.Key()
	require.NoError(t, mutex.Unlock(ctx))

	var keys []string
	for len(keys) < 7 {
		r := <-everything
		require.NoError(t, r.Err())
		for _, e := range r.Events {
			keys = append(keys, string(e.Kv.Key))
		}
	}
	require.Equal(t, []string{string(locked.Key), string(locked.Key), string(won.Leader.Key), string(won.Leader.Key), string(won.Leader.Key), held, held}, keys)

	open, err := stoapb.NewSessionsClient(conn).Open(ctx)
	require.NoError(t, err)
	_, err = open.Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "--namespace")
	err = conn.Invoke(ctx, "/etcdserverpb.KV/Unheard", &pb.RangeRequest{}, &pb.RangeResponse{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "--namespace")
	members, err := cli.MemberList(ctx)
	require.NoError(t, err)
	require.Len(t, members.Members, 1)
}
