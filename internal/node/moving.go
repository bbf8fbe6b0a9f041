package node

import (
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
)

// Keys that have to move do so in steps, each of which blocks all partitions, until they
// meet, stepKeys are moved, and up to stepVisits other keys or directories are passed over.
// The remaining time, at least two thirds, is for other requests.
const (
	stepKeys   = 250
	stepVisits = 20_000
)

// moveLoop brings keys on their way, on the leader. Where they have got to is in the
// log, so that another leader goes on from there.
func (n *Node) moveLoop() {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-n.moving: // soon, where this server leads already
		case <-ticker.C:
		}
		for n.moveOn() {
		}
	}
}

// moveSoon has the loop look for a step now.
func (n *Node) moveSoon() {
	select {
	case n.moving <- struct{}{}:
	default:
	}
}

// moveOn makes a step if there is one to make here, and tells whether there may be
// another.
func (n *Node) moveOn() bool {
	c := n.current()
	if !c.replica.Leading() {
		return false
	}
	step := c.machine.Ahead(store.Budget{Keys: stepKeys, Visits: stepVisits})
	if step == nil {
		return false
	}
	began := time.Now()
	done := make(chan error, 1)
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
		Parts:   c.machine.Placement().All(), System: true,
		Done: func(out replica.Outcome) { done <- out.Err },
	})
	select {
	case err := <-done:
		if err != nil {
			n.log.Debug("keys could not be moved on yet", zap.Error(err))
			return false
		}
	case <-n.life.Done():
		return false
	}
	return n.pause(n.life, max(n.cfg.StepPause, 2*time.Since(began))) == nil
}
