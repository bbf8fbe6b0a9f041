package overetcd

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const counterKey = "/ctr"

type counter struct {
	*Kit
	key string
}

func (k *Kit) Counter() recipe.Counter { return &counter{Kit: k, key: k.root + counterKey} }

// Increment is figure 5 (top): read, add, write if there was no other write
// meanwhile, or retry.
func (c *counter) Increment(ctx context.Context) (int64, error) {
	for {
		n, rev, err := c.read(ctx)
		if err != nil {
			return 0, err
		}
		c.tally.Calls.Add(1)
		resp, err := c.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(c.key), "=", rev)).
			Then(clientv3.OpPut(c.key, strconv.FormatInt(n+1, 10))).
			Commit()
		if err != nil {
			return 0, fmt.Errorf("incrementing: %w", err)
		}
		if resp.Succeeded {
			return n + 1, nil
		}
		c.tally.Retries.Add(1)
	}
}

func (c *counter) Value(ctx context.Context) (int64, error) {
	n, _, err := c.read(ctx)
	return n, err
}

// read returns zero and revision zero where there is no counter yet.
func (c *counter) read(ctx context.Context) (n, rev int64, err error) {
	c.tally.Calls.Add(1)
	resp, err := c.client.Get(ctx, c.key)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the counter: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return 0, 0, nil
	}
	n, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the counter: %w", err)
	}
	return n, resp.Kvs[0].ModRevision, nil
}
