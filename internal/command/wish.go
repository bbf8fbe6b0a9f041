package command

import (
	"encoding/binary"
	"fmt"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Wish says where keys are to be: an operator's, or the balancer's.
type Wish struct {
	Op        WishOp
	Key       string // whose slot is moved, or that is pinned or unpinned
	Partition int    // where to, for MoveSlot and Pin; how many stay, for Drain
	Slots     []placement.Assignment
}

// WishOp is the kind of a wish.
type WishOp uint8

// The kinds of wishes; see the methods of [placement.Map] that carry them out.
const (
	MoveSlot WishOp = iota + 1 // Moved
	Pin                        // Pin
	Unpin                      // Unpin
	Assign                     // Assigned, with Slots
	// Drain leaves keys in the first Partition partitions alone, before the others go.
	Drain
)

// The encoded wish: op (1 byte) | partition | length of key | key | number of slots, then for
// each its number and its partition. Numbers are unsigned varints.

// AppendTo appends the encoded wish to b.
func (w *Wish) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(w.Op)), uint64(w.Partition))
	b = append(binary.AppendUvarint(b, uint64(len(w.Key))), w.Key...)
	b = binary.AppendUvarint(b, uint64(len(w.Slots)))
	for _, a := range w.Slots {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(a.Slot)), uint64(a.Partition))
	}
	return b
}

// DecodeWish reads the body of a Place command.
func DecodeWish(b []byte) (Wish, error) {
	w, err := decodeWish(b)
	if err != nil {
		return Wish{}, fmt.Errorf("decode wish of %d bytes: %w", len(b), err)
	}
	return w, nil
}

func decodeWish(b []byte) (w Wish, err error) {
	r := reader{rest: b}
	if op := r.bytes(1); r.err == nil {
		w.Op = WishOp(op[0])
	}
	partition := r.uvarint()
	w.Key = string(r.bytes(r.uvarint()))
	n := r.uvarint()
	switch {
	case r.err != nil:
		return w, r.err
	case w.Op < MoveSlot || w.Op > Drain:
		return w, fmt.Errorf("unknown kind %d", w.Op)
	case partition >= placement.MaxPartitions:
		return w, fmt.Errorf("partition %d", partition)
	case n > placement.Slots:
		return w, fmt.Errorf("%d slots", n)
	}
	w.Partition = int(partition)
	for range n {
		slot, to := r.uvarint(), r.uvarint()
		if r.err != nil {
			return w, r.err
		}
		if slot >= placement.Slots || to >= placement.MaxPartitions {
			return w, fmt.Errorf("slot %d in partition %d", slot, to)
		}
		w.Slots = append(w.Slots, placement.Assignment{Slot: int(slot), Partition: int(to)})
	}
	if len(r.rest) > 0 {
		return w, fmt.Errorf("%d bytes too many", len(r.rest))
	}
	return w, nil
}
