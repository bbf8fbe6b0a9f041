package node

import (
	"time"

	"go.uber.org/zap"
)

// begin starts the goroutines of a core: one per group.
func (n *Node) begin(c *core) {
	for p := range c.wake {
		c.loops.Go(func() {
			for {
				select {
				case <-c.wake[p]:
					c.replica.Work(p)
				case <-c.halt:
					return
				}
			}
		})
	}
	c.loops.Go(c.disk.run)
	c.replica.Start()
	for p := range c.wake {
		c.wakeUp(p)
	}
}

func (c *core) wakeUp(p int) {
	select {
	case c.wake[p] <- struct{}{}:
	default:
	}
}

// stopLoops returns when no goroutine of the core runs any more.
func (c *core) stopLoops() {
	c.stopOnce.Do(func() { close(c.halt) })
	c.disk.stop()
	c.loops.Wait()
}

// tick drives Raft's clock.
func (n *Node) tick() {
	ticker := time.NewTicker(n.cfg.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-ticker.C:
			c := n.core.Load()
			c.replica.Tick()
			n.noteLeader(c)
		}
	}
}

// noteLeader keeps what is told about leadership up to date.
func (n *Node) noteLeader(c *core) {
	leader := c.replica.Leader()
	if old := n.lastLeader.Swap(leader); old != leader && leader != 0 {
		n.changes.Add(1)
		n.log.Info("leader", zap.Uint64("id", leader), zap.Uint64("term", c.replica.Term()))
	}
	if leader != 0 && (leader != n.cfg.ID || c.replica.Leading()) {
		n.readied.Do(func() { close(n.ready) })
	}
}

// role is told by the replica when this server begins or ceases to stamp. It
// runs on a group's loop.
func (n *Node) role(c *core, leads bool) {
	if n.core.Load() != c && n.core.Load() != nil {
		return
	}
	if !leads {
		n.expirer.Demote()
		return
	}
	n.expirer.Promote(time.Now(), c.leases, n.cfg.Election)
	n.noteLeader(c)
}
