package apply

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

func (x *execution) leaseGrant(req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	l, err := x.m.Leases.Grant(req.GetID(), req.GetTTL())
	if err != nil {
		return nil, err
	}
	if o := x.m.Observer; o != nil {
		o.LeaseGranted(l)
	}
	return &pb.LeaseGrantResponse{Header: x.header(false), ID: l.ID, TTL: l.TTL}, nil
}

// leaseRevoke removes a lease and deletes its keys, of all partitions at one
// revision and in key order.
func (x *execution) leaseRevoke(req *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	id := req.GetID()
	if !x.m.Leases.Has(id) {
		return nil, fault.LeaseNotFound
	}
	var keys [][]byte
	for p := range x.parts.Each() {
		keys = append(keys, x.m.Stores[p].LeaseKeys(id)...)
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		x.delete(key)
	}
	x.expired, x.ending = x.sub, true
	if err := x.m.Leases.Revoke(id); err != nil {
		return nil, err
	}
	x.dropSession(id)
	if o := x.m.Observer; o != nil {
		o.LeaseRevoked(id)
	}
	return &pb.LeaseRevokeResponse{Header: x.header(true)}, nil
}

func (x *execution) leaseCheckpoint(req *pb.LeaseCheckpointRequest) (*pb.LeaseCheckpointResponse, error) {
	for _, c := range req.GetCheckpoints() {
		x.m.Leases.Checkpoint(c.GetID(), c.GetRemaining_TTL())
	}
	return &pb.LeaseCheckpointResponse{Header: x.header(false)}, nil
}
