package differential

import (
	"fmt"

	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Names that the drawn requests have: few, so that they meet. The first user has no token, and
// that of the second is none of the server's.
var (
	userNames = []string{"", "forger", root, "u1", "u2", "u3"}
	roleNames = []string{root, "r1", "r2", "r3"}
)

// TestUsersScript sends the same requests of several users to etcd and to the server under test:
// administration of users, roles and permissions, logins, and requests for keys and leases and
// watches, most of which some users may do and others may not. They are drawn, but the same ones
// each time. Ranges without a key are left out: etcd permits some of them that stoa refuses.
func TestUsersScript(t *testing.T) {
	for _, parts := range []int{1, 3} {
		for seed := range 2 {
			t.Run(fmt.Sprintf("%d partitions, seed %d", parts, seed), func(t *testing.T) {
				p := startPair(t, shape{nodes: 1, parts: parts, args: []string{"--bcrypt-cost=4"}})
				refused := usersScript(t, p, 400, seed)
				t.Logf("%d of the answers are errors", refused)
			})
		}
	}
}

func usersScript(t *testing.T, p *pair, steps, seed int) (refused int) {
	for _, req := range []proto.Message{
		&pb.AuthEnableRequest{}, &pb.AuthenticateRequest{Name: root, Password: root}, &pb.AuthUserAddRequest{Name: root, Password: root},
		&pb.AuthEnableRequest{}, &pb.AuthRoleAddRequest{Name: root}, &pb.AuthUserGrantRoleRequest{User: root, Role: root}, put("before", "1"),
	} {
		require.NoError(t, p.do(0, req))
	}
	for _, s := range []*side{p.ref, p.sut} {
		s.tokens["forger"] = "forged.7"
	}
	enabled := false
	for i := range steps {
		if !enabled && i%20 == 0 {
			p.as(root)
			require.NoError(t, p.do(0, &pb.AuthEnableRequest{}))
			require.NoError(t, p.do(0, &pb.AuthenticateRequest{Name: root, Password: root}))
			enabled = true
		}
		step := rapid.Custom(func(t *rapid.T) userStep {
			d := &drawing{T: t, current: p.revs.current(), dense: p.dense, forward: true}
			return d.userStep(i)
		}).Example(seed*steps + i)
		p.as(root)
		require.NoError(t, p.catchUp(0))
		p.as(step.user)
		require.NoError(t, p.do(0, step.request))
		if p.failed {
			refused++
		} else if _, ok := step.request.(*pb.AuthDisableRequest); ok {
			enabled = false
		}
	}
	return refused
}

// userStep is a request of a user's.
type userStep struct {
	user    string
	request proto.Message
}

func (d *drawing) userStep(number int) (st userStep) {
	st.user = rapid.SampledFrom(userNames).Draw(d.T, "user")
	switch kind := rapid.IntRange(0, 99).Draw(d.T, "kind"); {
	case kind < 12:
		name := rapid.SampledFrom(userNames[2:]).Draw(d.T, "name")
		st.request = &pb.AuthenticateRequest{Name: name, Password: d.password(name)}
	case kind < 45:
		st.request = d.administration()
		if !d.flip(5, "by anybody") {
			st.user = root
		}
	case kind < 55:
		st.request = d.leaseRequest()
	case kind < 62:
		st.request = opened{d.watch(number)}
	case kind < 70:
		st.request = d.get()
	case kind < 85:
		st.request = d.put()
	case kind < 92:
		st.request = d.del()
	default:
		txn := d.txn(1)
		if len(txn.Success)+len(txn.Failure)+len(txn.Compare) == 0 {
			st.user = root // of anybody else stoa wants a token, and etcd doesn't
		}
		st.request = txn
	}
	return st
}

// password is the user's name, but for root sometimes another one. That of root stays.
func (d *drawing) password(user string) string {
	if user != root && d.flip(4, "other password") {
		return "other"
	}
	return user
}

func (d *drawing) administration() proto.Message {
	user := rapid.SampledFrom(userNames[3:]).Draw(d.T, "of user")
	role := rapid.SampledFrom(roleNames).Draw(d.T, "of role")
	ordinary := rapid.SampledFrom(roleNames[1:]).Draw(d.T, "of ordinary role")
	switch rapid.IntRange(0, 19).Draw(d.T, "administration") {
	case 0, 1, 2:
		return &pb.AuthUserAddRequest{Name: user, Password: d.password(user), Options: &authpb.UserAddOptions{NoPassword: d.flip(8, "without a password")}}
	case 3:
		return &pb.AuthUserDeleteRequest{Name: user}
	case 4:
		return &pb.AuthUserGetRequest{Name: rapid.SampledFrom(userNames[1:]).Draw(d.T, "whom")}
	case 5:
		return &pb.AuthUserListRequest{}
	case 6:
		return &pb.AuthUserChangePasswordRequest{Name: user, Password: d.password(user)}
	case 7, 8, 9:
		return &pb.AuthUserGrantRoleRequest{User: user, Role: role}
	case 10:
		return &pb.AuthUserRevokeRoleRequest{Name: user, Role: role}
	case 11, 12:
		return &pb.AuthRoleAddRequest{Name: ordinary}
	case 13:
		return &pb.AuthRoleDeleteRequest{Role: ordinary}
	case 14:
		return &pb.AuthRoleGetRequest{Role: role}
	case 15:
		return &pb.AuthRoleListRequest{}
	case 16, 17:
		return &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: d.permission()}
	case 18:
		p := d.permission()
		return &pb.AuthRoleRevokePermissionRequest{Role: role, Key: p.Key, RangeEnd: p.RangeEnd}
	}
	return rapid.SampledFrom([]proto.Message{&pb.AuthStatusRequest{}, &pb.AuthStatusRequest{}, &pb.AuthEnableRequest{}, &pb.AuthDisableRequest{}}).Draw(d.T, "auth")
}

func (d *drawing) permission() *authpb.Permission {
	p := &authpb.Permission{PermType: authpb.Permission_Type(rapid.IntRange(0, 2).Draw(d.T, "permission"))}
	p.Key, p.RangeEnd = d.keyRange()
	return p
}
