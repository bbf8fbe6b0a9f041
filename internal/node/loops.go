package node

import (
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/bootstrap"
)

// begin starts the goroutines of a core: one per group. led says that this server led all
// groups until now.
func (n *Node) begin(c *core, led bool) {
	for p := range c.wake {
		c.loops.Go(func() {
			for {
				select {
				case <-c.wake[p]:
					began := n.clock()
					c.replica.Work(p)
					n.load.Worked(p, n.clock()-began)
				case <-c.halt:
					return
				}
			}
		})
	}
	c.loops.Go(c.disk.run)
	c.replica.Start(led)
	for p := range c.wake {
		c.wakeUp(p)
	}
}

func (c *core) wakeUp(p int) { signal(c.wake[p]) }

// signal has the receiver of a channel with room for one look soon.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// stopLoops returns when no goroutine of the core runs any more.
func (c *core) stopLoops() {
	c.stopOnce.Do(func() { close(c.halt) })
	c.disk.stop()
	c.loops.Wait()
}

// every starts a goroutine that calls do once in an interval, and whenever it is to be soon, until
// the server stops.
func (n *Node) every(interval time.Duration, soon <-chan struct{}, do func()) {
	n.running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-n.life.Done():
				return
			case <-ticker.C:
			case <-soon:
			}
			do()
		}
	})
}

// tick drives Raft's clock.
func (n *Node) tick() {
	c := n.core.Load()
	c.replica.Tick()
	n.noteLeader(c)
	n.noteRemoved(c)
	n.watchFlush()
}

// noteLeader updates the published leadership.
func (n *Node) noteLeader(c *core) {
	leader := c.replica.Leader()
	if old := n.lastLeader.Swap(leader); old != leader {
		n.logLeader(old, leader, c.replica.Term())
	}
	if leader != 0 {
		n.unled.Store(0)
	} else {
		n.unled.CompareAndSwap(0, max(1, n.clock()))
	}
	if leader != 0 && (leader != n.cfg.ID || c.replica.Leading()) && !c.joins() && n.mayShow(c) {
		n.readied.Do(func() { close(n.ready) })
	}
}

// logLeader logs and counts a leader change.
func (n *Node) logLeader(old, leader, term uint64) {
	fields := []zap.Field{memberID("local-member-id", n.cfg.ID), zap.Uint64("term", term)}
	if old == 0 {
		n.log.Info("elected leader", append(fields, memberID("leader-member-id", leader))...)
	} else if leader == 0 {
		n.log.Warn("lost leader", append(fields, memberID("former-leader-member-id", old))...)
		return // changes are counted when there is another
	} else {
		n.log.Info("changed leader", append(fields, memberID("leader-member-id", leader), memberID("former-leader-member-id", old))...)
	}
	n.changes.Add(1)
}

// memberID is how logs name members, as etcd's do.
func memberID(key string, id uint64) zap.Field { return zap.Stringer(key, bootstrap.ID(id)) }

// role is called by the replica when this server begins or stops stamping. It
// runs on a group's loop.
func (n *Node) role(c *core, epoch uint64) {
	if !n.stamps(c, epoch) || epoch == 0 {
		return
	}
	if c.machine.Placement().Transit() != nil {
		signal(n.moving)
	}
	n.noteLeader(c)
}

// stamps notes the epoch in which this server stamps, or that it stamps in none, with the times of leases. A core that has been
// replaced says nothing any more: that is looked at under the lock, so that it can't be late, behind its successor.
func (n *Node) stamps(c *core, epoch uint64) bool {
	n.roles.Lock()
	defer n.roles.Unlock()
	if now := n.core.Load(); now != c && now != nil {
		return false
	}
	if epoch == 0 {
		n.leases.Follow()
	} else {
		n.running.Go(n.leases.Lead(epoch, c.leases, n.cfg.Election)) // the caller is one that Stop ends before it waits
	}
	return true
}
