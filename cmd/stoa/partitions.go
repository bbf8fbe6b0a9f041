package main

import (
	"context"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/node"
)

// partitions shows operators how the partition groups stand, and moves keys between them.
type partitions struct{ n *node.Node }

func (p partitions) ListPartitions() *stoapb.ListPartitionsResponse {
	from := p.n.State()
	r := &stoapb.ListPartitionsResponse{Moving: from.Moving}
	for i, g := range from.Partitions {
		r.Partitions = append(r.Partitions, &stoapb.Partition{
			Id: uint32(i), Leader: g.Leader, Term: g.Term, CommittedIndex: g.Committed, AppliedIndex: g.Applied,
			ClosedRevision: g.Closed, Revision: g.Revision, Slots: uint32(g.Slots), Keys: g.Keys,
		})
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
