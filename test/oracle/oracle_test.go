package oracle

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

var (
	requests = flag.Int("requests", 100_000, "random requests")
	seed     = flag.Uint64("seed", 1, "of the requests")
)

// round is the number of requests after which both begin anew: with few users and roles most of the
// interesting states come early.
const round = 400

// TestTheSameAsEtcd makes the same changes in both, and asks both the same questions.
func TestTheSameAsEtcd(t *testing.T) {
	draw := rand.New(rand.NewPCG(*seed, 0))
	changed, permitted, denied := 0, 0, 0
	for done := 0; done < *requests; done += round {
		p := newPair(t, draw)
		for range round {
			if draw.IntN(3) > 0 {
				if p.change() {
					changed++
				}
				continue
			}
			switch ok, asked := p.ask(); {
			case ok:
				permitted++
			case asked:
				denied++
			}
		}
		p.compare()
		p.etcd.Close()
	}
	t.Logf("%d changes with an effect, %d requests permitted, %d denied", changed, permitted, denied)
	require.NotZero(t, min(changed, permitted, denied))
}

type pair struct {
	t    *testing.T
	draw *rand.Rand
	etcd etcd.AuthStore
	stoa *auth.State
}

func newPair(t *testing.T, draw *rand.Rand) *pair {
	tokens, err := etcd.NewTokenProvider(nil, "simple", func(uint64) <-chan struct{} { return nil }, time.Hour)
	require.NoError(t, err)
	return &pair{t, draw, etcd.NewAuthStore(nil, newMemory(), tokens, 4), auth.New()}
}

func (p *pair) one(of ...string) string { return of[p.draw.IntN(len(of))] }
func (p *pair) user() string            { return p.one("root", "root", "a", "b", "c", "") }
func (p *pair) role() string            { return p.one("root", "r", "s", "u", "") }

// span never ends before it begins: what etcd makes of those depends on how the tree of
// permissions came about.
func (p *pair) span() (key, end []byte) {
	k := p.draw.IntN(5)
	key = []byte{byte('a' + k)}
	switch p.draw.IntN(4) {
	case 0:
		return key, []byte{0}
	case 1:
		return key, []byte{byte('a' + k + 1 + p.draw.IntN(3))}
	}
	return key, nil
}

func (p *pair) change() bool {
	key, end := p.span()
	r := &pb.InternalRaftRequest{}
	var theirs func() error
	switch p.draw.IntN(12) {
	case 0:
		r.AuthEnable = &pb.AuthEnableRequest{}
		theirs = p.etcd.AuthEnable
	case 1:
		if p.draw.IntN(4) > 0 {
			return false // or it is rarely enabled
		}
		r.AuthDisable = &pb.AuthDisableRequest{}
		theirs = func() error { p.etcd.AuthDisable(); return nil }
	case 2:
		q := &pb.AuthUserAddRequest{Name: p.user(), HashedPassword: p.one("aGFzaA==", "not base64"), Options: &authpb.UserAddOptions{NoPassword: p.draw.IntN(4) == 0}}
		r.AuthUserAdd = q
		theirs = func() error { _, err := p.etcd.UserAdd(proto.Clone(q).(*pb.AuthUserAddRequest)); return err }
	case 3:
		if p.draw.IntN(3) > 0 {
			return false
		}
		q := &pb.AuthUserDeleteRequest{Name: p.user()}
		r.AuthUserDelete = q
		theirs = func() error { _, err := p.etcd.UserDelete(q); return err }
	case 4:
		q := &pb.AuthUserChangePasswordRequest{Name: p.user(), HashedPassword: p.one("aGFzaA==", "bmV3", "not base64")}
		r.AuthUserChangePassword = q
		theirs = func() error { _, err := p.etcd.UserChangePassword(q); return err }
	case 5, 6:
		q := &pb.AuthUserGrantRoleRequest{User: p.user(), Role: p.role()}
		r.AuthUserGrantRole = q
		theirs = func() error { _, err := p.etcd.UserGrantRole(q); return err }
	case 7:
		q := &pb.AuthUserRevokeRoleRequest{Name: p.user(), Role: p.role()}
		r.AuthUserRevokeRole = q
		theirs = func() error { _, err := p.etcd.UserRevokeRole(q); return err }
	case 8:
		q := &pb.AuthRoleAddRequest{Name: p.role()}
		r.AuthRoleAdd = q
		theirs = func() error { _, err := p.etcd.RoleAdd(q); return err }
	case 9:
		if p.draw.IntN(3) > 0 {
			return false
		}
		q := &pb.AuthRoleDeleteRequest{Role: p.role()}
		r.AuthRoleDelete = q
		theirs = func() error { _, err := p.etcd.RoleDelete(q); return err }
	case 10:
		q := &pb.AuthRoleGrantPermissionRequest{Name: p.role(), Perm: &authpb.Permission{
			PermType: authpb.Permission_Type(p.draw.IntN(3)), Key: key, RangeEnd: end,
		}}
		switch p.draw.IntN(20) {
		case 0:
			q.Perm = nil
		case 1:
			q.Perm.Key, q.Perm.RangeEnd = []byte("c"), []byte("b")
		case 2:
			q.Perm.Key = nil
		}
		// From twelve permissions on, etcd's order of those with one key is that of an
		// unstable sort.
		if role := p.stoa.Role(q.Name); role != nil && len(role.Permissions) >= 11 {
			return false
		}
		r.AuthRoleGrantPermission = q
		theirs = func() error {
			_, err := p.etcd.RoleGrantPermission(proto.Clone(q).(*pb.AuthRoleGrantPermissionRequest))
			return err
		}
	case 11:
		q := &pb.AuthRoleRevokePermissionRequest{Role: p.role(), Key: key, RangeEnd: end}
		r.AuthRoleRevokePermission = q
		theirs = func() error { _, err := p.etcd.RoleRevokePermission(q); return err }
	}
	next, err := p.stoa.Change(r)
	p.same(theirs(), err, "%v", r)
	effect := err == nil && next != p.stoa
	if err == nil {
		p.stoa = next
	}
	require.Equal(p.t, p.etcd.Revision(), p.stoa.Revision, "after %v", r)
	require.Equal(p.t, p.etcd.IsAuthEnabled(), p.stoa.Enabled, "after %v", r)
	return effect
}

// faults are ours for each error of etcd's package. What clients are told of both is package
// rpc's, and compared beside a real etcd.
var faults = map[error]*fault.Fault{
	etcd.ErrRootUserNotExist: fault.RootUserNotExist, etcd.ErrRootRoleNotExist: fault.RootRoleNotExist,
	etcd.ErrUserAlreadyExist: fault.UserExists, etcd.ErrUserEmpty: fault.UserEmpty, etcd.ErrUserNotFound: fault.UserNotFound,
	etcd.ErrRoleAlreadyExist: fault.RoleExists, etcd.ErrRoleNotFound: fault.RoleNotFound, etcd.ErrRoleEmpty: fault.RoleEmpty,
	etcd.ErrPermissionNotGiven: fault.PermissionNotGiven, etcd.ErrPermissionDenied: fault.PermissionDenied,
	etcd.ErrNoPasswordUser: fault.NoPasswordUser, etcd.ErrRoleNotGranted: fault.RoleNotGranted,
	etcd.ErrPermissionNotGranted: fault.PermissionNotGranted, etcd.ErrInvalidAuthMgmt: fault.InvalidAuthMgmt,
}

func (p *pair) same(theirs, ours error, format string, args ...any) {
	if theirs == nil {
		require.NoError(p.t, ours, append([]any{format}, args...)...)
		return
	}
	require.Contains(p.t, faults, theirs)
	require.ErrorIs(p.t, ours, faults[theirs], append([]any{format}, args...)...)
}

// ask asks for a permission of a user, if there is that user and permissions are enforced.
func (p *pair) ask() (ok, asked bool) {
	name := p.user()
	u := p.stoa.User(name)
	if !p.stoa.Enabled || u == nil {
		return false, false
	}
	_, err := p.stoa.Authorize(u.Credential)
	require.NoError(p.t, err)
	info := &etcd.AuthInfo{Username: name, Revision: p.etcd.Revision()}
	key, end := p.span()
	var theirs, ours error
	switch p.draw.IntN(5) {
	case 0:
		theirs, ours = p.etcd.IsPutPermitted(info, key), u.MayWrite(key, nil)
	case 1:
		theirs, ours = p.etcd.IsRangePermitted(info, key, end), u.MayRead(key, end)
	case 2:
		theirs, ours = p.etcd.IsDeleteRangePermitted(info, key, end), u.MayWrite(key, end)
	case 3:
		theirs, ours = p.etcd.IsAdminPermitted(info), u.MustBeRoot()
	case 4:
		role := p.role()
		var denied error
		if p.etcd.IsAdminPermitted(info) != nil && !p.etcd.HasRole(name, role) {
			denied = etcd.ErrPermissionDenied
		}
		theirs, ours = denied, u.MaySeeRole(role)
	}
	p.same(theirs, ours, "user %q, [%q, %q)", name, key, end)
	return !errors.Is(theirs, etcd.ErrPermissionDenied), true
}

// compare compares all that both know of users and roles.
func (p *pair) compare() {
	users, err := p.etcd.UserList(&pb.AuthUserListRequest{})
	require.NoError(p.t, err)
	require.ElementsMatch(p.t, users.Users, p.stoa.Users())
	for _, name := range users.Users {
		got, err := p.etcd.UserGet(&pb.AuthUserGetRequest{Name: name})
		require.NoError(p.t, err)
		require.Equal(p.t, got.Roles, append([]string(nil), p.stoa.User(name).Roles...))
	}
	roles, err := p.etcd.RoleList(&pb.AuthRoleListRequest{})
	require.NoError(p.t, err)
	require.ElementsMatch(p.t, roles.Roles, p.stoa.Roles())
	for _, name := range roles.Roles {
		got, err := p.etcd.RoleGet(&pb.AuthRoleGetRequest{Role: name})
		require.NoError(p.t, err)
		if name != auth.Root {
			require.True(p.t, proto.Equal(got, &pb.AuthRoleGetResponse{Perm: p.stoa.Role(name).Permissions}), "%v, %v", got.Perm, p.stoa.Role(name).Permissions)
		}
	}
}
