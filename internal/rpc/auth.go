package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// authServer answers as an etcd on which authentication was never enabled.
// Users and roles can't be set up yet: those methods, and enabling, answer
// Unimplemented.
type authServer struct {
	pb.UnimplementedAuthServer
	header
}

// firstAuthRevision is that of an auth store in which nothing was changed.
const firstAuthRevision = 1

func (s *authServer) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.new(), AuthRevision: firstAuthRevision}, nil
}

func (s *authServer) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return &pb.AuthDisableResponse{Header: s.new()}, nil
}

// Authenticate's error makes a client with a name and password go on without a
// token.
func (s *authServer) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

func (s *authServer) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	return nil, status.Error(codes.Unimplemented, "stoa: authentication is not supported yet")
}
