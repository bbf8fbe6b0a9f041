package node

import (
	"fmt"
	"time"

	"go.uber.org/zap"
)

// resized goes on with another number of partitions: the state, in which nothing changes any
// more, is written to the file, and a core is made of what recovery.Resize makes of that.
// Requests wait meanwhile.
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
	old.stopLoops()
	if err := n.flush(old); err != nil {
		return err
	}
	if err := old.close(); err != nil {
		return err
	}
	c, err := n.open()
	if err != nil {
		return err
	}
	n.succeed(old, c, led)
	n.log.Info("the number of partitions has changed", zap.Int("from", len(old.stores)), zap.Int("to", len(c.stores)),
		zap.Uint32("generation", c.groups.Generation), zap.Duration("took", time.Since(began)))
	return nil
}
