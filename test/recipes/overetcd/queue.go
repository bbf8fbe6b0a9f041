package overetcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const queuePrefix = "/queue/"

type queue struct {
	*Kit
	prefix string
}

func (k *Kit) Queue() recipe.Queue { return &queue{Kit: k, prefix: k.root + queuePrefix} }

// Add is figure 7 (left), T1-T4. The element is its id, its data is empty.
func (q *queue) Add(ctx context.Context, element string) error {
	q.tally.Calls.Add(1)
	if _, err := q.client.Put(ctx, q.prefix+element, ""); err != nil {
		return fmt.Errorf("adding %s: %w", element, err)
	}
	return nil
}

// Remove is figure 7 (left), T6-T18: learn all elements, oldest first, and delete the
// first that no other participant deletes before.
func (q *queue) Remove(ctx context.Context) (string, error) {
	for {
		q.tally.Calls.Add(1)
		list, err := q.client.Get(ctx, q.prefix, clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return "", fmt.Errorf("listing the queue: %w", err)
		}
		for _, kv := range list.Kvs {
			q.tally.Calls.Add(1)
			resp, err := q.client.Delete(ctx, string(kv.Key))
			if err != nil {
				return "", fmt.Errorf("removing %s: %w", kv.Key, err)
			}
			if resp.Deleted == 1 {
				return strings.TrimPrefix(string(kv.Key), q.prefix), nil
			}
			q.tally.Retries.Add(1)
		}
		if len(list.Kvs) == 0 {
			q.tally.Retries.Add(1)
		}
	}
}
