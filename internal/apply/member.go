package apply

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Members returns the servers of the cluster. The slice and its elements are
// shared and never change; like the alarms, the list is replaced as a whole.
func (m *Machine) Members() []*pb.Member { return *m.members.Load() }

// LoadMembers sets the members after a restart or a bootstrap.
func (m *Machine) LoadMembers(list []*pb.Member) {
	list = slices.Clone(list)
	m.members.Store(&list)
}

// memberPublish notes under which name and URLs a member serves clients, which only
// it knows, and only once it runs.
func (x *execution) memberPublish(req *pb.Member) (*pb.MemberUpdateResponse, error) {
	old := x.m.Members()
	i := slices.IndexFunc(old, func(m *pb.Member) bool { return m.GetID() == req.GetID() })
	if i < 0 {
		return nil, fault.MemberNotFound
	}
	list := slices.Clone(old)
	list[i] = &pb.Member{
		ID: req.GetID(), Name: req.GetName(), ClientURLs: req.GetClientURLs(),
		PeerURLs: old[i].GetPeerURLs(), IsLearner: old[i].GetIsLearner(),
	}
	x.m.members.Store(&list)
	return &pb.MemberUpdateResponse{Header: x.header(false)}, nil
}
