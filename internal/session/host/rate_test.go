package host

import (
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
)

// rate gives all servers a state of users in which there is one who may do everything, but not
// often.
func (s *story) rate(perSecond int) {
	now := s.someone(&authpb.Permission{PermType: authpb.READWRITE, Key: []byte{0}, RangeEnd: []byte{0}})
	if perSecond > 0 {
		var err error
		now, err = now.ChangeQuota(auth.QuotaChange{Quota: auth.Quota{Role: "r", Limits: auth.Limits{Rate: int64(perSecond)}}})
		require.NoError(s.t, err)
	}
	s.enforce(now)
}

// someone has everything done on behalf of a user with one permission.
func (s *story) someone(perm *authpb.Permission) *auth.State {
	now := auth.New()
	for _, r := range []*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a"}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}},
		{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: perm}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "a", Role: "r"}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	} {
		var err error
		now, err = now.Change(r)
		require.NoError(s.t, err)
	}
	s.user = now.User("a").Credential
	return now
}

func (s *story) enforce(now *auth.State) {
	for _, sv := range s.servers {
		sv.state.Machine.LoadAuth(now)
		sv.limits.Change(now)
		sv.feed.Permit(1, func(user uint64, key, end []byte) error {
			u, err := now.Authorize(user)
			if err != nil {
				return err
			}
			return u.MayRead(key, end)
		}, nil)
	}
}

// password gives the user another one, with which it has not logged in.
func (s *story) password() {
	now, err := s.servers[0].state.Machine.Auth().Change(&pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: "a"}})
	require.NoError(s.t, err)
	s.enforce(now)
}
