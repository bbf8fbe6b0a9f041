package apply

import (
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
)

// members are the servers of the cluster: the list, which only a rendezvous of all
// partitions changes, and the configuration of each group, which changes under the lock
// of its store together with the store's position.
type members struct {
	list    atomic.Pointer[membership.List]
	configs []atomic.Pointer[membership.Config]
}

// Membership returns the list of members, which never changes; it is replaced as a whole.
func (m *Machine) Membership() *membership.List { return m.members.list.Load() }

// Members returns the servers of the cluster. The slice and its elements are shared.
func (m *Machine) Members() []*pb.Member { return m.Membership().Members }

// Configuration returns the Raft configuration of a group as of the entries that have
// been applied.
func (m *Machine) Configuration(p int) *membership.Config { return m.members.configs[p].Load() }

// Configurations returns those of all groups. Only with the locks of all stores they belong
// to one cut.
func (m *Machine) Configurations() []*membership.Config {
	all := make([]*membership.Config, len(m.Stores))
	for p := range all {
		all[p] = m.Configuration(p)
	}
	return all
}

// LoadMembership sets the members after a restart or a bootstrap. Without configurations
// they are those that a cluster begins with.
func (m *Machine) LoadMembership(list *membership.List, configs []*membership.Config) {
	m.members.list.Store(list)
	m.members.configs = make([]atomic.Pointer[membership.Config], len(m.Stores))
	for p := range m.members.configs {
		if configs == nil {
			m.members.configs[p].Store(membership.Initial(list))
		} else {
			m.members.configs[p].Store(configs[p])
		}
	}
}

// Configure notes that partition p has applied an entry that changes the configuration of
// its group.
func (m *Machine) Configure(p int, index, term uint64, next *membership.Config) {
	s := m.Stores[p]
	s.Lock()
	s.SetApplied(index, term)
	m.members.configs[p].Store(next)
	s.Unlock()
}

// memberPublish notes under which name and URLs a member serves clients, which only
// it knows, and only once it runs.
func (x *execution) memberPublish(req *pb.Member) (*pb.MemberUpdateResponse, error) {
	next, err := x.m.Membership().Publish(req.GetID(), req.GetName(), req.GetClientURLs())
	if err != nil {
		return nil, err
	}
	x.m.members.list.Store(next)
	return &pb.MemberUpdateResponse{Header: x.header(false)}, nil
}

// memberChange changes the list of members. The groups follow later, and have followed
// the change before it.
func (x *execution) memberChange(body []byte) Result {
	c, err := membership.Decode(body)
	if err != nil {
		return x.failed(unreadable(command.MemberChange, body))
	}
	r := x.members(command.MemberChange, func(l *membership.List) (*membership.List, error) {
		if c.Op != membership.Reset && !membership.Settled(l, x.m.Configurations()) {
			return nil, fault.Reconfiguring
		}
		return l.Next(c)
	})
	if r.Err == nil && c.Op == membership.Reset {
		x.configurationsReached()
		if x.m.Fence.Alone() {
			x.m.refusal = nil
		}
	}
	return r
}

// members replaces the list of members.
func (x *execution) members(k command.Kind, next func(*membership.List) (*membership.List, error)) Result {
	if err := x.covers(x.m.Placement().All()); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", k, err))
	}
	list, err := next(x.m.Membership())
	if err != nil {
		return x.failed(err)
	}
	x.m.members.list.Store(list)
	return x.done(false, &pb.MemberListResponse{Header: x.header(false), Members: list.Members})
}

// configurationsReached notes that all groups have followed the list. The entries in front of
// this one have reduced them to its one member.
func (x *execution) configurationsReached() {
	for p := range x.m.members.configs {
		x.m.members.configs[p].Store(x.m.Configuration(p).Reached(x.m.Membership().Generation))
	}
}
