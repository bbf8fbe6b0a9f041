package node

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// A session's user renews it whatever keys its lease has, such as those of extensions, and no other user keeps it alive.
func TestWhoRenewsLeases(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.enforced(&stoapb.QuotaChange{Prefix: []byte("/t/"), MaxKeys: 2})
	n, ctx := c.nodes[0], asServer(t.Context())
	user := func(name string) uint64 {
		if name != "root" {
			add := &pb.AuthUserAddRequest{Name: name, Options: &authpb.UserAddOptions{NoPassword: true}}
			_, err := n.AuthChange(ctx, &pb.InternalRaftRequest{AuthUserAdd: add})
			require.NoError(t, err)
		}
		return n.current().machine.Auth().User(name).Credential
	}
	root, a, b := user("root"), user("a"), user("b")
	const plain, session, bare = 1, 2, 3
	for id, kind := range map[int64]command.Kind{plain: command.LeaseGrant, session: command.SessionOpen, bare: command.SessionOpen} {
		_, err := n.grantAs(ctx, kind, &pb.LeaseGrantRequest{ID: id, TTL: 1000}, identity{user: a})
		require.NoError(t, err)
		if id != bare {
			_, err = n.Put(ctx, &pb.PutRequest{Key: fmt.Append(nil, "/x/", id), Lease: id})
			require.NoError(t, err)
		}
	}
	for _, try := range []struct {
		user      uint64
		lease     int64
		asSession bool
		want      error
	}{
		{a, plain, false, fault.PermissionDenied},
		{a, plain, true, fault.PermissionDenied},
		{root, plain, false, nil},
		{a, session, true, nil},
		{a, session, false, nil},
		{root, session, false, nil},
		{root, session, true, fault.SessionGone},
		{b, bare, false, fault.PermissionDenied},
		{b, bare, true, fault.SessionGone},
	} {
		_, err := n.renewAs(ctx, try.lease, try.user, try.asSession)
		require.ErrorIs(t, err, try.want, "%+v", try)
	}
}
