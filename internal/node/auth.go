package node

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// AuthChange changes users, roles or permissions, or whether they are enforced. It takes the
// passwords out of the request, and logs their hashes.
func (n *Node) AuthChange(ctx context.Context, r *pb.InternalRaftRequest) (*pb.AuthStatusResponse, error) {
	if err := n.hashPassword(ctx, r); err != nil {
		return nil, err
	}
	for end := n.clock() + int64(3*versionInterval); ; {
		resp, err := submitSystem[*pb.AuthStatusResponse](ctx, n, command.Auth, r)
		if !n.early(err, end) || n.pause(ctx, shortly) != nil {
			return resp, err
		}
	}
}

// strictAuth is the state of users and roles in a core, no older than the call, to be told: not by a server that is fenced, where also
// an error such as that there is no such user may be wrong.
func (n *Node) strictAuth(ctx context.Context) (*core, *auth.State, error) {
	c, err := n.strict(ctx, placement.Of(0))
	if err != nil {
		return nil, nil, err
	}
	now := c.machine.Auth()
	if n.Fenced() {
		return nil, nil, fault.Fenced
	}
	return c, now, nil
}

// authState is the present state of users and roles, no older than the call, for a user of
// it.
func (n *Node) authState(ctx context.Context) (now *auth.State, u *auth.User, err error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, now, err = n.strictAuth(ctx); err != nil {
		return nil, nil, err
	}
	u, err = as(ctx, n, &who, func(who identity) (*auth.User, error) { return now.Authorize(who.user) })
	return now, u, err
}

// AuthStatus says whether permissions are enforced, to everybody.
func (n *Node) AuthStatus(ctx context.Context) (*pb.AuthStatusResponse, error) {
	if _, err := n.identify(ctx); errors.Is(err, fault.InvalidAuthToken) {
		return nil, err
	}
	_, now, err := n.strictAuth(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.AuthStatusResponse{Header: n.head(), Enabled: now.Enabled, AuthRevision: now.Revision}, nil
}

func (n *Node) head() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: n.Revision()} }

// UserGet returns the roles of a user, to root and to the user itself.
func (n *Node) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MaySee(r.GetName())
	}
	if err != nil {
		return nil, err
	}
	u := now.User(r.GetName())
	if u == nil {
		return nil, fault.UserNotFound
	}
	return &pb.AuthUserGetResponse{Header: n.head(), Roles: u.Roles}, nil
}

// UserList returns the names of all users, to root.
func (n *Node) UserList(ctx context.Context) (*pb.AuthUserListResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MustBeRoot()
	}
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserListResponse{Header: n.head(), Users: now.Users()}, nil
}

// RoleGet returns the permissions of a role, to root and to the users who have it.
func (n *Node) RoleGet(ctx context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MaySeeRole(r.GetRole())
	}
	if err != nil {
		return nil, err
	}
	role := now.Role(r.GetRole())
	if role == nil {
		return nil, fault.RoleNotFound
	}
	resp := &pb.AuthRoleGetResponse{Header: n.head(), Perm: role.Permissions}
	if role.Name == auth.Root { // which may do everything, whatever it was granted
		resp.Perm = []*authpb.Permission{{PermType: authpb.Permission_READWRITE, RangeEnd: []byte{0}}}
	}
	return resp, nil
}

// RoleList returns the names of all roles, to root.
func (n *Node) RoleList(ctx context.Context) (*pb.AuthRoleListResponse, error) {
	now, asks, err := n.authState(ctx)
	if err == nil {
		err = asks.MustBeRoot()
	}
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleListResponse{Header: n.head(), Roles: now.Roles()}, nil
}

// AuthEnabled reports whether permissions are enforced.
func (n *Node) AuthEnabled() bool { return n.core.Load().machine.Auth().Enabled }

// AuthRevision counts the changes of users and roles.
func (n *Node) AuthRevision() uint64 { return n.core.Load().machine.Auth().Revision }

// known refuses, before it costs a place in the log, a write of a client who is no user, if
// permissions are enforced here and on the leader.
func (n *Node) known(ctx context.Context, who identity) error {
	if who.user != 0 {
		return nil
	}
	c, err := n.present(ctx)
	if err != nil || !c.machine.Auth().Enabled {
		return err
	}
	if c, err = n.strict(ctx, placement.Of(0)); err != nil {
		return err
	}
	_, err = c.machine.Auth().Authorize(who.user)
	return err
}
