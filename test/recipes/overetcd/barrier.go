package overetcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const (
	barrierPrefix = "/barrier/"
	readyKey      = "/ready"
)

type barrier struct {
	*Kit
	id        string
	threshold int
}

func (k *Kit) Barrier(id string, threshold int) recipe.Barrier {
	return &barrier{Kit: k, id: id, threshold: threshold}
}

// Enter is figure 9 (left): register, count, and wait for /ready or make it.
func (b *barrier) Enter(ctx context.Context) error {
	b.tally.Calls.Add(2)
	if _, err := b.client.Put(ctx, b.root+barrierPrefix+b.id, ""); err != nil {
		return fmt.Errorf("registering at the barrier: %w", err)
	}
	here, err := b.client.Get(ctx, b.root+barrierPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("counting at the barrier: %w", err)
	}
	if here.Count < int64(b.threshold) {
		// The barrier is completed after this count.
		return b.wait(ctx, b.root+readyKey, here.Header.Revision+1, clientv3.WithFilterDelete())
	}
	b.tally.Calls.Add(1)
	if _, err := b.client.Put(ctx, b.root+readyKey, ""); err != nil {
		return fmt.Errorf("opening the barrier: %w", err)
	}
	return nil
}
