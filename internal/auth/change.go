package auth

import (
	"bytes"
	"encoding/base64"
	"slices"
	"sort"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Change returns the state after a request, which is one of those that change users, roles,
// or whether they are enforced: the same state if the request has no effect. Whether its
// user may make it is for the caller to check.
func (s *State) Change(r *pb.InternalRaftRequest) (*State, error) {
	n, err := s.change(r)
	if err != nil || n == s {
		return n, err
	}
	return n.indexed(), nil
}

func (s *State) change(r *pb.InternalRaftRequest) (*State, error) {
	switch {
	case r.AuthEnable != nil:
		return s.enable()
	case r.AuthDisable != nil:
		return s.disable(), nil
	case r.AuthUserAdd != nil:
		return s.userAdd(r.AuthUserAdd)
	case r.AuthUserDelete != nil:
		return s.userDelete(r.AuthUserDelete)
	case r.AuthUserChangePassword != nil:
		return s.userChangePassword(r.AuthUserChangePassword)
	case r.AuthUserGrantRole != nil:
		return s.userGrantRole(r.AuthUserGrantRole)
	case r.AuthUserRevokeRole != nil:
		return s.userRevokeRole(r.AuthUserRevokeRole)
	case r.AuthRoleAdd != nil:
		return s.roleAdd(r.AuthRoleAdd)
	case r.AuthRoleDelete != nil:
		return s.roleDelete(r.AuthRoleDelete)
	case r.AuthRoleGrantPermission != nil:
		return s.roleGrantPermission(r.AuthRoleGrantPermission)
	case r.AuthRoleRevokePermission != nil:
		return s.roleRevokePermission(r.AuthRoleRevokePermission)
	}
	return nil, fault.Internal
}

// enable doesn't count as a change, as in etcd.
func (s *State) enable() (*State, error) {
	if s.Enabled {
		return s, nil
	}
	root := s.users[Root]
	switch {
	case root == nil:
		return nil, fault.RootUserNotExist
	case !root.root:
		return nil, fault.RootRoleNotExist
	}
	n := *s
	n.Enabled = true
	return &n, nil
}

func (s *State) disable() *State {
	if !s.Enabled {
		return s
	}
	n := *s
	n.Revision++
	n.Enabled, n.Since = false, n.Revision
	return &n
}

func (s *State) userAdd(r *pb.AuthUserAddRequest) (*State, error) {
	switch {
	case r.GetName() == "":
		return nil, fault.UserEmpty
	case s.users[r.GetName()] != nil:
		return nil, fault.UserExists
	}
	u := &User{Name: r.GetName(), NoPassword: r.GetOptions().GetNoPassword(), ID: s.Revision + 1, Credential: s.Revision + 1}
	if !u.NoPassword {
		var err error
		if u.Password, err = hashOf(r.GetHashedPassword()); err != nil {
			return nil, err
		}
	}
	n := s.next()
	n.put(u)
	return n, nil
}

// hashOf reads a hash as etcd's requests carry it.
func hashOf(text string) ([]byte, error) {
	hash, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fault.NoPasswordUser
	}
	return hash, nil
}

func (s *State) userDelete(r *pb.AuthUserDeleteRequest) (*State, error) {
	if s.Enabled && r.GetName() == Root {
		return nil, fault.InvalidAuthMgmt
	}
	u := s.users[r.GetName()]
	if u == nil {
		return nil, fault.UserNotFound
	}
	n := s.next()
	delete(n.users, u.Name)
	delete(n.byCredential, u.Credential)
	return n, nil
}

func (s *State) userChangePassword(r *pb.AuthUserChangePasswordRequest) (*State, error) {
	old := s.users[r.GetName()]
	if old == nil {
		return nil, fault.UserNotFound
	}
	u := *old
	u.Credential, u.Password = s.Revision+1, nil
	if !u.NoPassword {
		var err error
		if u.Password, err = hashOf(r.GetHashedPassword()); err != nil {
			return nil, err
		}
	}
	n := s.next()
	n.put(&u)
	return n, nil
}

func (s *State) userGrantRole(r *pb.AuthUserGrantRoleRequest) (*State, error) {
	old := s.users[r.GetUser()]
	if old == nil {
		return nil, fault.UserNotFound
	}
	if r.GetRole() != Root && s.roles[r.GetRole()] == nil {
		return nil, fault.RoleNotFound
	}
	at, has := slices.BinarySearch(old.Roles, r.GetRole())
	if has {
		return s, nil
	}
	u := *old
	u.Roles = slices.Insert(slices.Clone(old.Roles), at, r.GetRole())
	n := s.next()
	n.put(&u)
	return n, nil
}

func (s *State) userRevokeRole(r *pb.AuthUserRevokeRoleRequest) (*State, error) {
	if s.Enabled && r.GetName() == Root && r.GetRole() == Root {
		return nil, fault.InvalidAuthMgmt
	}
	old := s.users[r.GetName()]
	if old == nil {
		return nil, fault.UserNotFound
	}
	u := old.without(r.GetRole())
	if u == old {
		return nil, fault.RoleNotGranted
	}
	n := s.next()
	n.put(u)
	return n, nil
}

// without is the user without a role: the same if it doesn't have it.
func (u *User) without(role string) *User {
	rest := slices.DeleteFunc(slices.Clone(u.Roles), func(r string) bool { return r == role })
	if len(rest) == len(u.Roles) {
		return u
	}
	n := *u
	n.Roles = rest
	return &n
}

func (s *State) roleAdd(r *pb.AuthRoleAddRequest) (*State, error) {
	switch {
	case r.GetName() == "":
		return nil, fault.RoleEmpty
	case s.roles[r.GetName()] != nil:
		return nil, fault.RoleExists
	}
	n := s.next()
	n.putRole(&Role{Name: r.GetName()})
	return n, nil
}

func (s *State) roleDelete(r *pb.AuthRoleDeleteRequest) (*State, error) {
	if s.Enabled && r.GetRole() == Root {
		return nil, fault.InvalidAuthMgmt
	}
	if s.roles[r.GetRole()] == nil {
		return nil, fault.RoleNotFound
	}
	n := s.next()
	delete(n.roles, r.GetRole())
	n.quotas = withoutRole(s.quotas, r.GetRole())
	for _, old := range s.users {
		if u := old.without(r.GetRole()); u != old {
			n.put(u)
		}
	}
	return n, nil
}

// roleGrantPermission changes the kind of a permission that the role has for the same range
// if that is the first with its key, as in etcd.
func (s *State) roleGrantPermission(r *pb.AuthRoleGrantPermissionRequest) (*State, error) {
	p := r.GetPerm()
	switch {
	case p == nil:
		return nil, fault.PermissionNotGiven
	case !validRange(p.GetKey(), p.GetRangeEnd()):
		return nil, fault.InvalidAuthMgmt
	}
	old := s.roles[r.GetName()]
	if old == nil {
		return nil, fault.RoleNotFound
	}
	granted := &authpb.Permission{PermType: p.GetPermType(), Key: p.GetKey(), RangeEnd: p.GetRangeEnd()}
	list := slices.Clone(old.Permissions)
	at := sort.Search(len(list), func(i int) bool { return bytes.Compare(list[i].GetKey(), p.GetKey()) >= 0 })
	if at < len(list) && bytes.Equal(list[at].GetKey(), p.GetKey()) && bytes.Equal(list[at].GetRangeEnd(), p.GetRangeEnd()) {
		list[at] = granted
	} else {
		behind := sort.Search(len(list), func(i int) bool { return bytes.Compare(list[i].GetKey(), p.GetKey()) > 0 })
		list = slices.Insert(list, behind, granted)
	}
	n := s.next()
	n.putRole(&Role{Name: old.Name, Permissions: list})
	return n, nil
}

// validRange refuses ranges that hold no key, and the empty key.
func validRange(key, end []byte) bool {
	return len(key) > 0 && (len(end) == 0 || len(end) == 1 && end[0] == 0 || bytes.Compare(key, end) < 0)
}

func (s *State) roleRevokePermission(r *pb.AuthRoleRevokePermissionRequest) (*State, error) {
	old := s.roles[r.GetRole()]
	if old == nil {
		return nil, fault.RoleNotFound
	}
	rest := slices.DeleteFunc(slices.Clone(old.Permissions), func(p *authpb.Permission) bool {
		return bytes.Equal(p.GetKey(), r.GetKey()) && bytes.Equal(p.GetRangeEnd(), r.GetRangeEnd())
	})
	if len(rest) == len(old.Permissions) {
		return nil, fault.PermissionNotGranted
	}
	n := s.next()
	n.putRole(&Role{Name: old.Name, Permissions: rest})
	return n, nil
}
