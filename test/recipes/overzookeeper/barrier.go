package overzookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const (
	barrierNode = "/barrier"
	readyNode   = "/ready"
)

type barrier struct {
	*Kit
	id        string
	threshold int
}

func (k *Kit) Barrier(id string, threshold int) recipe.Barrier {
	return barrier{Kit: k, id: id, threshold: threshold}
}

// Enter is figure 9 (left): register, count, and wait for /ready or make it.
func (b barrier) Enter(ctx context.Context) error {
	b.tally.Calls.Add(3)
	_, err := b.conn.Create(barrierNode+"/"+b.id, nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		return fmt.Errorf("registering at the barrier: %w", err)
	}
	here, _, err := b.conn.Children(barrierNode)
	if err != nil {
		return fmt.Errorf("counting at the barrier: %w", err)
	}
	if len(here) < b.threshold {
		ready, _, events, err := b.conn.ExistsW(readyNode)
		if err != nil {
			return fmt.Errorf("waiting at the barrier: %w", err)
		}
		if ready {
			return nil
		}
		return waitFor(ctx, events)
	}
	_, err = b.conn.Create(readyNode, nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("opening the barrier: %w", err)
	}
	return nil
}
