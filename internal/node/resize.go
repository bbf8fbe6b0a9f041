package node

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/recovery"
)

// resized goes on with another number of partitions: what the file still lacks of the state, in
// which nothing changes any more, is written to it, the file is brought into the next generation
// (recovery.Resize), and a core is made whose small parts are read from that, and whose stores and
// logs are the old one's. Requests wait meanwhile, however many keys there are for the same time.
func (n *Node) resized(c *core) {
	n.running.Go(func() { // called by a group's loop, which Stop ends before it waits
		if err := n.regroup(c); err != nil {
			n.fatal(fmt.Errorf("going on with another number of partitions: %w", err))
		}
	})
}

func (n *Node) regroup(old *core) error {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if n.stopping.Load() || n.core.Load() != old {
		return nil // the file or the log tells the next life, or a snapshot has brought it
	}
	began := time.Now()
	led := old.replica.Leader() == n.cfg.ID
	old.stale.Store(true)
	defer old.release()
	old.stopLoops()
	if err := n.flush(old); err != nil {
		return err
	}
	c, err := n.inherit(old)
	if err != nil {
		return err
	}
	n.succeed(old, c, led)
	n.log.Info("the number of partitions has changed", zap.Int("from", len(old.stores)), zap.Int("to", len(c.stores)),
		zap.Uint32("generation", c.groups.Generation), zap.Duration("took", time.Since(began)))
	return nil
}

// inherit makes the core of the next generation of groups. One that has to be forced again is
// recovered from the file, as that has to look into the log. The file stays open: somebody may be reading it.
func (n *Node) inherit(old *core) (*core, error) {
	c := newCore()
	c.backend = old.backend
	if n.forcing {
		if err := old.wal.Close(); err != nil {
			return nil, err
		}
		return c, n.openRest(c, false)
	}
	if err := old.disk.drain(); err != nil {
		return nil, err
	}
	c.wal = old.wal
	meta, err := n.resume(c)
	if err != nil {
		return nil, err
	}
	if c.placement, err = recovery.Placement(&meta); err != nil {
		return nil, err
	}
	old.machine.Retire()
	c.stores, c.leases = recovery.InheritStores(&meta, old.stores, old.machine.Placement(), c.placement), old.leases
	if c.logs, err = recovery.InheritLogs(c.groups, c.members.Configs, old.logs, c.stores); err != nil {
		return nil, err
	}
	c.wal.SetHead(recovery.Head(c.logs))
	c.took(&meta)
	c.hashes.inherit(&old.hashes)
	c.compactions.inherit(&old.compactions)
	return c, n.assemble(c, &meta)
}
