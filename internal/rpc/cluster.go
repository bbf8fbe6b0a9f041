package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clusterServer lists the members. Changing them is not there yet.
type clusterServer struct {
	pb.UnsafeClusterServer
	header
	cluster Cluster
}

// MemberList's header has no revision, as in etcd.
func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	members, err := s.cluster.Members(ctx, r.Linearizable)
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &pb.MemberListResponse{Header: &pb.ResponseHeader{}, Members: members}
	s.identify(resp.Header)
	return resp, nil
}

var errMembership = status.Error(codes.Unimplemented, "stoa: changing the members of a cluster is not supported yet")

func (s *clusterServer) MemberAdd(context.Context, *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return nil, errMembership
}

func (s *clusterServer) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return nil, errMembership
}

func (s *clusterServer) MemberUpdate(context.Context, *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return nil, errMembership
}

func (s *clusterServer) MemberPromote(context.Context, *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return nil, errMembership
}
