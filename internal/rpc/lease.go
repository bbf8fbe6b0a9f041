package rpc

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/incoming"
)

type leaseServer struct {
	pb.UnsafeLeaseServer
	header
	lessor Lessor
}

// LeaseGrant also takes the time that the lease has in the beginning, from metadata: for one
// that moves from another cluster.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	resp, err := s.lessor.LeaseGrant(ctx, r)
	if remaining := remainingTTL(ctx); err == nil && remaining > 0 {
		err = s.lessor.LeaseShorten(ctx, resp.ID, remaining)
	}
	return filled(s.header, resp, err)
}

func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	resp, err := s.lessor.LeaseRevoke(ctx, r)
	return filled(s.header, resp, err)
}

// LeaseTimeToLive answers for a lease that isn't there with a TTL of -1, not
// with an error, which a leader of an earlier release tells.
func (s *leaseServer) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	id := r.ID
	resp, err := s.lessor.LeaseTimeToLive(ctx, r)
	if errors.Is(err, fault.LeaseNotFound) {
		return &pb.LeaseTimeToLiveResponse{Header: s.new(), ID: id, TTL: -1}, nil
	}
	return filled(s.header, resp, err)
}

// LeaseLeases lists the leases of sessions only to clients that know them, who say so in
// metadata.
func (s *leaseServer) LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	resp, err := s.lessor.LeaseLeases(ctx, r, incoming.First(ctx, metadataSessions) != "")
	return filled(s.header, resp, err)
}

// LeaseKeepAlive leaves the loop behind when the stream's context ends first:
// that is how a stream which demands a leader ends when there is none.
func (s *leaseServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	ctx := stream.Context()
	done := make(chan error, 1)
	go func() { done <- s.keepAlive(ctx, stream) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return toStatus(context.Cause(ctx))
	}
}

func (s *leaseServer) keepAlive(ctx context.Context, stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// The header is made before the lease is renewed, so that its revision
		// isn't above that of a revocation which comes right after.
		resp := &pb.LeaseKeepAliveResponse{Header: s.new(), ID: r.ID}
		ttl, err := s.lessor.LeaseRenew(ctx, r.ID)
		if err != nil && !errors.Is(err, fault.LeaseNotFound) {
			return toStatus(err)
		}
		if err == nil {
			resp.TTL = ttl
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}
