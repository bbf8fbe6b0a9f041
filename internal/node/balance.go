package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/balance"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/load"
	"github.com/stoa-kv/stoa/internal/placement"
)

// balancer moves slots between partitions while this server leads. Nothing of it is in the
// state: a bad decision costs time, and the next leader begins anew.
type balancer struct {
	n          *Node
	controller balance.Controller
}

// patience is how long the balancer waits for followers, and for its wish to be applied.
const patience = 5 * time.Second

// weigh keeps the load of the partitions of this server up to date, and balances it.
func (b *balancer) weigh() {
	n := b.n
	n.load.Fold(n.clock(), n.core.Load().machine.Placement())
	if n.cfg.Balance {
		b.step()
	}
}

func (b *balancer) step() {
	n := b.n
	c := n.core.Load()
	if !c.replica.Leading() {
		b.controller = balance.Controller{}
		return
	}
	s, why := n.situation(c)
	if why != nil {
		return
	}
	before := b.controller
	d := b.controller.Decide(s)
	if len(d.Moves) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.life, patience)
	defer cancel()
	if err := n.rebalance(ctx, c, &d); err != nil {
		b.controller = before // as if it had not been decided: again with the next step
		n.log.Debug("slots were not moved to even out the load of partitions", zap.Error(err))
	}
}

// rebalance has a decision carried out, unless a member catches up.
func (n *Node) rebalance(ctx context.Context, c *core, d *balance.Decision) error {
	if err := n.followed(c); err != nil {
		return err
	}
	n.log.Info("moving slots to even out the load of partitions", zap.String("reason", d.Why), zap.Int("slots", len(d.Moves)),
		zap.Int("keys", d.Keys()), zap.Float64s("load-before", d.Before), zap.Float64s("load-after", d.After))
	w := command.Wish{Op: command.Assign, Slots: d.Assignments()}
	if err := n.decide(ctx, command.Command{Kind: command.Place, User: own(c), Body: w.AppendTo(nil)}); err != nil {
		return err
	}
	n.counts.decisions.Add(1)
	n.counts.slotsMoved.Add(int64(len(d.Moves)))
	return nil
}

// followed returns nil if all followers that are connected are close behind.
func (n *Node) followed(c *core) error {
	for _, id := range c.replica.Peers() {
		if !n.transport.Connected(id) {
			continue // it takes part again by its log or a snapshot, and then counts
		}
		if !c.replica.CaughtUp(id) {
			return fmt.Errorf("member %v catches up", bootstrap.ID(id))
		}
	}
	return nil
}

// situation is what the balancer decides by; or an error that says why it can't decide now.
func (n *Node) situation(c *core) (*balance.Situation, error) {
	where := c.machine.Placement()
	switch {
	case where.Partitions() == 1:
		return nil, errors.New("there is one partition")
	case where.Transit() != nil:
		return nil, errors.New("keys are being moved between partitions")
	case command.Place.Since() > c.machine.Level():
		return nil, errors.New("the cluster's version has no moves of slots")
	case !c.replica.Steady():
		return nil, errors.New("members are being changed, or a member catches up")
	}
	s := &balance.Situation{
		Now: time.Duration(n.clock()), Load: n.load.Snapshot(where, load.Counters), Where: where,
		Keys: func(p int) *[placement.Slots]int { return c.keysOf(p, where) },
	}
	for _, st := range c.stores {
		st.RLock()
		s.Total += st.Keys()
		st.RUnlock()
	}
	return s, nil
}

// piece is how many keys are counted under a store's lock at a time: half a millisecond.
const piece = 4096

// keysOf counts the keys of each slot of a partition.
func (c *core) keysOf(p int, where *placement.Map) *[placement.Slots]int {
	counts := new([placement.Slots]int)
	st := c.stores[p]
	slot, until := 0, []byte(nil)
	for from, more := []byte{0}, true; more; {
		st.RLock()
		from, more = st.Walk(from, piece, func(key []byte) {
			if until == nil || bytes.Compare(key, until) >= 0 {
				slot = where.Slot(key)
				_, until = where.Run(key)
			}
			counts[slot]++
		})
		st.RUnlock()
	}
	return counts
}

// Balance returns the moves that would even out the load of the leader's loops, whenever the
// balancer moved something last; unless dry, it has them carried out: for root alone.
func (n *Node) Balance(ctx context.Context, dry bool) (balance.Decision, error) {
	var d balance.Decision
	body, err := n.callLeader(ctx, methodBalance, nil)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, fmt.Errorf("decoding the leader's answer: %w: %w", err, fault.Internal)
	}
	if dry || len(d.Moves) == 0 {
		return d, nil
	}
	return d, n.Place(ctx, command.Wish{Op: command.Assign, Slots: d.Assignments()})
}

// answerBalance answers a server that asks the leader for a decision.
func (n *Node) answerBalance(c *core, reply func([]byte, error)) {
	var d balance.Decision
	if s, why := n.situation(c); why != nil {
		d.Why = why.Error()
	} else {
		d = balance.Plan(s)
	}
	reply(json.Marshal(d))
}
