package rpc

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Partitions returns the status of this server's partitions.
type Partitions interface {
	Partitions() []*stoapb.Partition
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
	return &stoapb.ListPartitionsResponse{
		ClusterId: s.info.ClusterID(), MemberId: s.info.MemberID(), Partitions: s.partitions.Partitions(),
	}, nil
}
