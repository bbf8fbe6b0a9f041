package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// clusterServer lists and changes the members. Headers have no revision, as in etcd.
type clusterServer struct {
	pb.UnsafeClusterServer
	header
	cluster Cluster
}

func (s *clusterServer) head() *pb.ResponseHeader {
	h := &pb.ResponseHeader{}
	s.identify(h)
	return h
}

func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	members, err := s.cluster.Members(ctx, r.Linearizable)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pb.MemberListResponse{Header: s.head(), Members: members}, nil
}

func (s *clusterServer) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	added, members, err := s.cluster.MemberAdd(ctx, r.PeerURLs, r.IsLearner)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pb.MemberAddResponse{Header: s.head(), Member: added, Members: members}, nil
}

func (s *clusterServer) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	members, err := s.cluster.MemberRemove(ctx, r.ID)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pb.MemberRemoveResponse{Header: s.head(), Members: members}, nil
}

func (s *clusterServer) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	members, err := s.cluster.MemberUpdate(ctx, r.ID, r.PeerURLs)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pb.MemberUpdateResponse{Header: s.head(), Members: members}, nil
}

func (s *clusterServer) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	members, err := s.cluster.MemberPromote(ctx, r.ID)
	if err != nil {
		return nil, toStatus(err)
	}
	return &pb.MemberPromoteResponse{Header: s.head(), Members: members}, nil
}
