package node

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/recovery"
)

// force makes this server the only member of its cluster, if it was started for that. It is
// done for the first core alone, unless that has to execute a change of the number of partitions
// first, and, as in etcd, not for a new data directory.
func (n *Node) force(c *core) error {
	if !n.cfg.ForceNewCluster || n.core.Load() != nil && !n.forcing {
		return nil
	}
	if c.joins() {
		return errors.New("--force-new-cluster: this member has not received the state of its cluster yet; start another member with it")
	}
	self := &pb.Member{ID: n.cfg.ID}
	for _, m := range n.cfg.Members {
		if m.GetID() == n.cfg.ID {
			self = m
		}
	}
	f := recovery.Forced{Self: self, Members: c.members, Epochs: c.epochs, Origin: n.nextOrigin(), Logger: n.log}
	done, err := f.Force(c.wal, c.logs, c.stores)
	n.forcing = !done
	return err
}
