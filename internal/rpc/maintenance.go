package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/version"
)

type maintenanceServer struct {
	pb.UnsafeMaintenanceServer
	header
	m  Maintenance
	lg *zap.Logger
}

func (s *maintenanceServer) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	resp, err := s.m.Status(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	resp.Header, resp.Version, resp.DowngradeInfo = s.new(), version.Etcd, s.downgradeInfo()
	resp.RaftTerm = resp.Header.RaftTerm
	if resp.Leader == 0 {
		resp.Errors = append([]string{rpctypes.ErrNoLeader.Error()}, resp.Errors...)
	}
	return resp, nil
}

func (s *maintenanceServer) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	hash, rev, err := s.m.Hash(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &pb.HashResponse{Header: &pb.ResponseHeader{Revision: rev}, Hash: hash}
	return resp, s.fill(resp.Header)
}

func (s *maintenanceServer) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	resp, err := s.m.HashKV(ctx, r.Revision)
	return filled(s.header, resp, err)
}

func (s *maintenanceServer) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	resp, err := s.m.Alarm(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	if resp.Header == nil {
		resp.Header = &pb.ResponseHeader{}
	}
	return resp, s.fill(resp.Header)
}

// Defragment answers without a header, as etcd does.
func (s *maintenanceServer) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	if err := s.m.Defragment(ctx); err != nil {
		s.lg.Warn("failed to defragment", zap.Error(err))
		return nil, toStatus(err)
	}
	return &pb.DefragmentResponse{}, nil
}

func (s *maintenanceServer) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if s.info.MemberID() != s.info.Leader() {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err := s.m.MoveLeader(ctx, r.TargetID); err != nil {
		return nil, toStatus(err)
	}
	return &pb.MoveLeaderResponse{}, nil
}
