package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// Resize changes the number of partitions of the cluster: for root alone. It returns once this
// server goes on with it. While members come or go, it waits for them, and as long as it takes
// while keys move: before partitions go, all keys leave them, beside other requests.
func (n *Node) Resize(ctx context.Context, partitions int) error {
	who, err := n.identify(ctx)
	if err != nil {
		return err
	}
	if partitions < 1 || partitions > apply.MaxGroups {
		return fault.BadPlacement.With(fmt.Sprintf("stoa: there can be 1 to %d partitions", apply.MaxGroups))
	}
	limit := int64(n.cfg.requestTimeout())
	for early, late := n.clock()+int64(10*versionInterval), n.clock()+limit; ; {
		if err = n.known(ctx, who); err != nil {
			return err
		}
		c, err := n.present(ctx)
		if err != nil {
			return err
		}
		if len(c.stores) == partitions { // nothing that the log would have to decide
			return administers(c, who.user)
		}
		if c.machine.Placement().Transit() != nil {
			err, late = fault.Moving, n.clock()+limit
		} else if err = n.mayResize(ctx, c, who.user); err == nil {
			if err = n.decideOn(ctx, c, toward(c, partitions, who.user)); errors.Is(err, fault.Moved) {
				err, late = fault.Moving, n.clock()+limit // their number is another by now, and with it what comes next
			}
		}
		wait := n.early(err, early) ||
			(errors.Is(err, fault.Moving) || fault.Passing(err)) && n.clock() < late
		switch {
		case n.unknown(ctx, &who, err):
		case err != nil && !wait:
			return err
		case n.pause(ctx, shortly) != nil:
			return context.Cause(ctx)
		}
	}
}

// mayResize refuses what the log would refuse: the command stops the leader's stamping before that, for all others.
func (n *Node) mayResize(ctx context.Context, c *core, user uint64) error {
	if err := c.machine.MayResize(); err != nil {
		return err
	}
	err := administers(c, user)
	if errors.Is(err, fault.PermissionDenied) { // as far as this server knows
		if c, err = n.strictAll(ctx); err == nil {
			err = administers(c, user)
		}
	}
	return err
}

func administers(c *core, user uint64) error {
	u, err := c.machine.Auth().Authorize(user)
	if err != nil {
		return err
	}
	return u.MustBeRoot()
}

// toward is the next command of a change of the number of partitions.
func toward(c *core, partitions int, user uint64) command.Command {
	if c.machine.MayDrain() && !c.machine.Placement().Within(partitions) {
		w := command.Wish{Op: command.Drain, Partition: partitions}
		return command.Command{Kind: command.Place, User: user, Body: w.AppendTo(nil)}
	}
	return command.Command{Kind: command.Resize, User: user, Body: command.AppendResize(nil, partitions)}
}
