package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Place has a wish of where keys are to be carried out: for root alone. It returns once the
// keys are on their way. While others are, it waits for these.
func (n *Node) Place(ctx context.Context, w command.Wish) error {
	ctx, cancel := n.limited(ctx)
	defer cancel()
	who, err := n.identify(ctx)
	if err != nil {
		return err
	}
	if w.Partition >= placement.MaxPartitions { // there is no room for it in the log
		return fault.BadPlacement.With(fmt.Sprintf("stoa: there is no partition %d", w.Partition))
	}
	body := w.AppendTo(nil)
	if n.cfg.MaxRequestBytes > 0 && len(body) > n.cfg.MaxRequestBytes {
		return fault.RequestTooLarge
	}
	for end := n.clock() + int64(3*versionInterval); ; {
		if err := n.known(ctx, who); err != nil {
			return err
		}
		err := n.decide(ctx, command.Command{Kind: command.Place, User: who.user, Body: body})
		switch {
		case n.unknown(ctx, &who, err):
		case (n.early(err, end) || errors.Is(err, fault.Moving)) && n.pause(ctx, shortly) == nil:
		default:
			return err
		}
	}
}

// Pin is a prefix whose keys are kept in a partition.
type Pin struct {
	Key       string
	Partition int
}

// Pins are those that this server knows of, in order.
func (n *Node) Pins() []Pin {
	m := n.core.Load().machine.Placement().Settled()
	var list []Pin
	for _, key := range m.Pins() {
		slot, _ := m.RuleFor(key)
		list = append(list, Pin{key, int(m.Table()[slot])})
	}
	return list
}
