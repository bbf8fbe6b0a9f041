package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	if n.core.Load() == nil {
		others, err := f.Others(c.logs)
		if err != nil {
			return err
		}
		if err := n.lost(others); err != nil {
			return err
		}
	}
	done, err := f.Force(c.wal, c.logs, c.stores)
	n.forcing = !done
	return err
}

// lost refuses to give up members that run: told by this one that they were removed they would end, though they may be the majority that
// has been serving.
func (n *Node) lost(members []*pb.Member) error {
	if n.cfg.Runs == nil {
		return nil
	}
	running := make([]string, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			if n.cfg.Runs(m) {
				name := cmp.Or(m.GetName(), fmt.Sprintf("%x", m.GetID())) // one that has been added hasn't announced its name yet
				running[i] = fmt.Sprintf("%s (%s)", name, strings.Join(m.GetPeerURLs(), ","))
			}
		})
	}
	all.Wait()
	if running = slices.DeleteFunc(running, func(text string) bool { return text == "" }); len(running) > 0 {
		return fmt.Errorf("--force-new-cluster: nothing was changed, since other members run, and would be removed: %s. Stop them for good, or start this member without the flag",
			strings.Join(running, ", "))
	}
	return nil
}
