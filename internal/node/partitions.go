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
// server goes on with it; other requests wait meanwhile. While members come or go, it waits
// for them.
func (n *Node) Resize(ctx context.Context, partitions int) error {
	ctx, cancel := n.limited(ctx)
	defer cancel()
	who, err := n.identify(ctx)
	if err != nil {
		return err
	}
	if partitions < 1 || partitions > apply.MaxGroups {
		return fault.BadPlacement.With(fmt.Sprintf("stoa: there can be 1 to %d partitions", apply.MaxGroups))
	}
	body := command.AppendResize(nil, partitions)
	for end := n.clock() + int64(10*versionInterval); ; {
		if err = n.known(ctx, who); err != nil {
			return err
		}
		if n.Partitions() == partitions { // nothing that the log would have to decide
			u, err := n.current().machine.Auth().Authorize(who.user)
			if err == nil && !u.IsRoot() {
				err = fault.PermissionDenied
			}
			return err
		}
		c := n.current()
		if err = c.machine.MayResize(); err == nil {
			err = n.decide(ctx, c, command.Command{Kind: command.Resize, User: who.user, Body: body})
		}
		_, downgrading := n.ClusterVersion()
		early := errors.Is(err, fault.VersionTooLow) && !downgrading && n.clock() < end
		switch {
		case n.unknown(ctx, &who, err):
		case err != nil && !early && !errors.Is(err, fault.Moving) && !fault.Passing(err):
			return err
		case n.pause(ctx, shortly) != nil:
			return context.Cause(ctx)
		}
	}
}

// Partitions is their number, as far as this server knows.
func (n *Node) Partitions() int { return len(n.current().stores) }
