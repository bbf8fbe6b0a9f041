package main

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/node"
)

// partitions shows operators how the partition groups stand, moves keys between them, and changes their
// number.
type partitions struct{ n *node.Node }

func (p partitions) ListPartitions() *stoapb.ListPartitionsResponse {
	from := p.n.State()
	r := &stoapb.ListPartitionsResponse{Moving: from.Moving}
	for i, g := range from.Partitions {
		p := &stoapb.Partition{
			Id: uint32(i), Leader: g.Leader, Term: g.Term, CommittedIndex: g.Committed, AppliedIndex: g.Applied,
			ClosedRevision: g.Closed, Revision: g.Revision, Slots: uint32(g.Slots), Keys: g.Keys, Bytes: g.Bytes,
			Load: g.Load,
		}
		for _, h := range g.Hottest {
			p.Hottest = append(p.Hottest, &stoapb.PrefixLoad{Prefix: []byte(h.Prefix), Load: h.Load})
		}
		for _, s := range g.HotSlots {
			p.HottestSlots = append(p.HottestSlots, &stoapb.SlotLoad{Slot: uint32(s.Slot), Load: s.Load, Prefix: []byte(s.Prefix)})
		}
		r.Partitions = append(r.Partitions, p)
	}
	for _, pin := range p.n.Pins() {
		r.Pins = append(r.Pins, &stoapb.PinnedKeys{Prefix: []byte(pin.Key), Partition: uint32(pin.Partition)})
	}
	return r
}

func (p partitions) MoveKeys(ctx context.Context, r *stoapb.MoveKeysRequest) error {
	return p.n.Place(ctx, wish(command.MoveSlot, r))
}

func (p partitions) PinKeys(ctx context.Context, r *stoapb.PinKeysRequest) error {
	return p.n.Place(ctx, wish(command.Pin, r))
}

func (p partitions) UnpinKeys(ctx context.Context, r *stoapb.UnpinKeysRequest) error {
	return p.n.Place(ctx, command.Wish{Op: command.Unpin, Key: string(r.GetPrefix())})
}

func wish(op command.WishOp, r interface {
	GetPrefix() []byte
	GetPartition() uint32
}) command.Wish {
	return command.Wish{Op: op, Key: string(r.GetPrefix()), Partition: int(r.GetPartition())}
}

func (p partitions) Resize(ctx context.Context, r *stoapb.ResizeRequest) error {
	return p.n.Resize(ctx, int(r.GetPartitions()))
}

func (p partitions) Balance(ctx context.Context, r *stoapb.BalanceRequest) (*stoapb.BalanceResponse, error) {
	d, err := p.n.Balance(ctx, r.GetDryRun())
	if err != nil {
		return nil, err
	}
	resp := &stoapb.BalanceResponse{Reason: d.Why, Before: d.Before, After: d.After}
	for _, m := range d.Moves {
		resp.Moves = append(resp.Moves, &stoapb.SlotMove{
			Slot: uint32(m.Slot), From: uint32(m.From), To: uint32(m.To), Load: m.Load, Keys: int64(m.Keys), Prefix: []byte(m.Prefix),
		})
	}
	return resp, nil
}
