package rpc

import (
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

// Users and roles of the fake node: those of a machine without a log.

func (n *fakeNode) AuthChange(_ context.Context, r *pb.InternalRaftRequest) (*pb.AuthStatusResponse, error) {
	if err := n.begin(r); err != nil {
		return nil, err
	}
	next, err := n.users().Change(r)
	if err != nil {
		return nil, err
	}
	n.auth.Store(next)
	return &pb.AuthStatusResponse{Header: n.head(), Enabled: next.Enabled, AuthRevision: next.Revision}, nil
}

func (n *fakeNode) users() *auth.State {
	if s := n.auth.Load(); s != nil {
		return s
	}
	return auth.New()
}

func (n *fakeNode) AuthStatus(context.Context) (*pb.AuthStatusResponse, error) {
	s := n.users()
	return &pb.AuthStatusResponse{Header: n.head(), Enabled: s.Enabled, AuthRevision: s.Revision}, nil
}

func (n *fakeNode) Authenticate(_ context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return &pb.AuthenticateResponse{Header: n.head(), Token: r.GetName() + ".1"}, n.begin(r)
}

func (n *fakeNode) UserGet(_ context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	if err := n.begin(r); err != nil || n.users().User(r.GetName()) == nil {
		return nil, cmp.Or(err, error(fault.UserNotFound))
	}
	return &pb.AuthUserGetResponse{Header: n.head(), Roles: n.users().User(r.GetName()).Roles}, nil
}

func (n *fakeNode) UserList(context.Context) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: n.head(), Users: n.users().Users()}, nil
}

func (n *fakeNode) RoleGet(_ context.Context, r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	if err := n.begin(r); err != nil || n.users().Role(r.GetRole()) == nil {
		return nil, cmp.Or(err, error(fault.RoleNotFound))
	}
	return &pb.AuthRoleGetResponse{Header: n.head(), Perm: n.users().Role(r.GetRole()).Permissions}, nil
}

func (n *fakeNode) RoleList(context.Context) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: n.head(), Roles: n.users().Roles()}, nil
}

// User is the token.
func (n *fakeNode) User(ctx context.Context) string { return Token(ctx) }

// Permit refuses what the test says.
func (n *fakeNode) Permit(_ context.Context, root bool) error {
	f := n.permit.Load()
	if f == nil {
		return nil
	}
	return (*f)(root)
}
