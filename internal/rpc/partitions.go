package rpc

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Partitions returns the status of this server's partitions, moves keys between them, and changes
// their number. Those that move keys return once the keys are on their way.
type Partitions interface {
	ListPartitions() *stoapb.ListPartitionsResponse
	MoveKeys(ctx context.Context, r *stoapb.MoveKeysRequest) error
	PinKeys(ctx context.Context, r *stoapb.PinKeysRequest) error
	UnpinKeys(ctx context.Context, r *stoapb.UnpinKeysRequest) error
	Balance(ctx context.Context, r *stoapb.BalanceRequest) (*stoapb.BalanceResponse, error)
	Resize(ctx context.Context, r *stoapb.ResizeRequest) error
}

// ServePartitions adds stoa's own service. It must be called before Serve.
func (s *Server) ServePartitions(p Partitions) {
	s.register(stoapb.Partitions_ServiceDesc, &partitionsServer{info: s.node, partitions: p})
}

type partitionsServer struct {
	stoapb.UnimplementedPartitionsServer
	info       Info
	partitions Partitions
}

func (s *partitionsServer) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	r := s.partitions.ListPartitions()
	r.ClusterId, r.MemberId = s.info.ClusterID(), s.info.MemberID()
	return r, nil
}

func (s *partitionsServer) Move(ctx context.Context, r *stoapb.MoveKeysRequest) (*stoapb.MoveKeysResponse, error) {
	return &stoapb.MoveKeysResponse{}, toStatus(s.partitions.MoveKeys(ctx, r))
}

func (s *partitionsServer) Pin(ctx context.Context, r *stoapb.PinKeysRequest) (*stoapb.PinKeysResponse, error) {
	return &stoapb.PinKeysResponse{}, toStatus(s.partitions.PinKeys(ctx, r))
}

func (s *partitionsServer) Unpin(ctx context.Context, r *stoapb.UnpinKeysRequest) (*stoapb.UnpinKeysResponse, error) {
	return &stoapb.UnpinKeysResponse{}, toStatus(s.partitions.UnpinKeys(ctx, r))
}

func (s *partitionsServer) Resize(ctx context.Context, r *stoapb.ResizeRequest) (*stoapb.ResizeResponse, error) {
	return &stoapb.ResizeResponse{}, toStatus(s.partitions.Resize(ctx, r))
}

func (s *partitionsServer) Balance(ctx context.Context, r *stoapb.BalanceRequest) (*stoapb.BalanceResponse, error) {
	resp, err := s.partitions.Balance(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return resp, nil
}
