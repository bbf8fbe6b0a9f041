package recipes

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Barrier blocks its participants until all have entered.
type Barrier struct {
	client handle
	root   string
}

// NewBarrier returns the barrier at a root.
func NewBarrier(c Client, root string) *Barrier {
	return &Barrier{client: handle{c, c}, root: rootOf("barrier", root)}
}

// SetThreshold sets the number of participants. It must be called before the
// first Enter.
func (b *Barrier) SetThreshold(ctx context.Context, n int) error {
	if _, err := b.client.Put(ctx, b.root+"threshold", strconv.Itoa(n)); err != nil {
		return fmt.Errorf("recipes: setting up the barrier %s: %w", b.root, err)
	}
	return nil
}

// Enter waits until as many participants as the threshold have entered. A
// participant counts once, however often it enters, as long as its lease lasts.
// When the context ends first, it doesn't count any longer.
func (b *Barrier) Enter(ctx context.Context, id string, lease clientv3.LeaseID) error {
	who, err := participant(id, lease)
	if err == nil {
		if _, err = await(ctx, b.client, b.root+"enter/"+who); err != nil {
			b.giveUp(ctx, id)
		}
	}
	if err != nil {
		return fmt.Errorf("recipes: entering the barrier %s: %w", b.root, err)
	}
	return nil
}

// giveUp leaves, and doesn't wait for others: they may wait for this one to leave, if the barrier was opened meanwhile.
func (b *Barrier) giveUp(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if _, stop, err := open(ctx, b.client, b.root+"leave/"+id); err == nil {
		stop()
	}
	forget(ctx, b.client, b.root+"here/"+id)
}

// Leave waits until all others have left too, or their leases have ended. The last one
// closes the barrier, which can then be used again.
func (b *Barrier) Leave(ctx context.Context, id string) error {
	err := checkName("id", id)
	if err == nil {
		_, err = await(ctx, b.client, b.root+"leave/"+id)
	}
	if err != nil {
		return fmt.Errorf("recipes: leaving the barrier %s: %w", b.root, err)
	}
	return nil
}

// Close closes the barrier for later participants, without waiting for the
// present ones: the other way to reuse it.
func (b *Barrier) Close(ctx context.Context) error {
	_, err := b.client.Delete(ctx, b.root+"here/", clientv3.WithPrefix())
	if err == nil {
		_, err = b.client.Delete(ctx, b.root+"ready")
	}
	if err != nil {
		return fmt.Errorf("recipes: closing the barrier %s: %w", b.root, err)
	}
	return nil
}
