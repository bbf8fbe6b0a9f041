package node

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Stop hands leadership over if there is somebody to take it, flushes, and
// closes everything. Requests that still wait fail.
func (n *Node) Stop(ctx context.Context) error {
	if n.stopping.Swap(true) {
		return nil
	}
	n.handOver(ctx)
	n.end()
	c := n.halt()
	n.transport.Close()
	n.running.Wait()
	n.lines.drain(n.log)
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if err := n.flush(c); err != nil {
		n.log.Warn("the last flush failed; the log holds what it would have written", zap.Error(err))
	}
	return c.close()
}

// halt stops the last core there is: a snapshot that is being installed is first, and
// none is from now on.
func (n *Node) halt() *core {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	c := n.core.Load()
	c.stopLoops()
	n.calls.Stop(fault.Stopped)
	c.replica.Stop(fault.Stopped)
	return c
}

// handOverLimit is several times what it takes to bring a peer up to date and to
// have it elected, and leaves a stopping server time for its last flush.
const handOverLimit = 500 * time.Millisecond

// handOver moves the leadership of all groups to the most promising peer and
// waits a moment for it.
func (n *Node) handOver(ctx context.Context) {
	c := n.core.Load()
	if !c.replica.Leading() {
		return
	}
	to := n.successor(c)
	if to == 0 {
		return
	}
	n.log.Info("handing leadership over", memberID("to", to))
	// The peer may be stopping too; who is left will elect somebody.
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := n.transfer(ctx, c, to); err != nil {
		n.log.Warn("stopping without having handed leadership over", zap.Error(err))
	}
}

// successor is a peer that is connected; Raft brings it up to date before it
// lets it lead.
func (n *Node) successor(c *core) uint64 {
	for _, m := range c.machine.Members() {
		if m.GetID() != n.cfg.ID && !m.GetIsLearner() && n.transport.Connected(m.GetID()) {
			return m.GetID()
		}
	}
	return 0
}

func (n *Node) transfer(ctx context.Context, c *core, to uint64) error {
	c.replica.TransferAll(to)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for c.replica.Leader() != to {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}
	return nil
}
