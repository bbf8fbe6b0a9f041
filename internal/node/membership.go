package node

import (
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/transport"
)

// adopt takes the members from the file, or, if it has none yet, those that the
// cluster is bootstrapped with. A server that joins a cluster has none before the cluster
// has sent it its state.
func (n *Node) adopt(c *core, meta *backend.Meta) (err error) {
	if len(n.cfg.Members) == 0 && len(meta.Members) == 0 {
		return errors.New("the cluster has no members")
	}
	begins := membership.Of()
	if !n.cfg.Joins {
		begins = membership.Of(n.cfg.Members...)
	}
	if c.members, err = recovery.ReadMembership(meta, begins); err != nil {
		return fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	if m := c.members.List.Find(n.cfg.ID); m != nil {
		return n.checkName(n.knownName(m), c.members.List.Members)
	}
	return nil
}

// knownName is the name that the cluster has for this server, or, if it has announced none
// yet, the one with which it joined.
func (n *Node) knownName(m *pb.Member) string {
	if m.GetName() != "" {
		return m.GetName()
	}
	for _, m := range n.cfg.Members {
		if m.GetID() == n.cfg.ID {
			return m.GetName()
		}
	}
	return ""
}

// joins reports whether the server has no state of its cluster yet.
func (c *core) joins() bool { return len(c.members.List.Members) == 0 }

// checkName refuses the data of one member to another. A name that no member has is a new
// name, as in etcd.
func (n *Node) checkName(known string, members []*pb.Member) error {
	if n.cfg.Name == "" {
		n.cfg.Name = known
	}
	for _, m := range members {
		if m.GetID() != n.cfg.ID && m.GetName() == n.cfg.Name && n.cfg.Name != known {
			return fmt.Errorf("it is that of member %s (%x), and --name=%s is another member of that cluster: is this the right --data-dir?",
				known, n.cfg.ID, n.cfg.Name)
		}
	}
	return nil
}

// noteBegun records that this server's files exist, before it takes part: from now
// on they must.
func (n *Node) noteBegun() error {
	n.cfg.Begun = true
	if n.cfg.Registry == nil {
		return nil
	}
	return n.cfg.Registry.Begun()
}

// identifyTo has the links show this server's data directory, and note those of others.
func (n *Node) identifyTo(o *transport.Options) {
	mark := n.cfg.Registry.Mark()
	o.Mark = transport.Mark{Data: uint64(mark.Data), Starts: mark.Starts}
	o.Incarnation = uint64(mark.Start)
	o.Meet = func(peer uint64, m transport.Mark, start uint64) error {
		err := n.cfg.Registry.Meet(bootstrap.ID(peer), bootstrap.Mark{
			Data: bootstrap.ID(m.Data), Starts: m.Starts, Start: bootstrap.ID(start),
		})
		if refused := (*bootstrap.Refused)(nil); errors.As(err, &refused) {
			return transport.Outdated(refused.Error())
		}
		return err // of this server's disk
	}
	o.Expelled = func(err error) {
		err = fmt.Errorf("a peer refuses this member: %w", err)
		if errors.Is(err, transport.ErrDuplicateID) {
			n.fatal(fmt.Errorf("%w: stop one of the two, and never start two servers on copies of one data directory", err))
			return
		}
		n.outdated(err)
	}
}

// outdated ends a server whose data is not what it was.
func (n *Node) outdated(err error) {
	n.fatal(fmt.Errorf("the data in %s is not the latest of this member: %w. Put its latest data directory back, "+
		"or leave it stopped: a member that has lost data must not vote", n.cfg.DataDir, err))
}
