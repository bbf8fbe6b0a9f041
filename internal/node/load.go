package node

import (
	"time"

	"github.com/stoa-kv/stoa/internal/balance"
)

// hottest is how many prefixes, and slots, of a partition are shown.
const hottest = 5

// loadLoop keeps the load of the partitions of this server up to date, and balances it.
func (n *Node) loadLoop() {
	b := &balancer{n: n}
	ticker := time.NewTicker(balance.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-ticker.C:
			n.load.Fold(n.clock(), n.core.Load().machine.Placement())
			if n.cfg.Balance {
				b.step()
			}
		}
	}
}
