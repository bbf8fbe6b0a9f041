package overzookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const queueNode = "/queue"

type queue struct{ *Kit }

func (k *Kit) Queue() recipe.Queue { return queue{k} }

// Add is figure 7 (left), T1-T4. The element is its id, its data is empty.
func (q queue) Add(_ context.Context, element string) error {
	q.tally.Calls.Add(1)
	_, err := q.conn.Create(queueNode+"/"+element+"-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return fmt.Errorf("adding %s: %w", element, err)
	}
	return nil
}

// Remove is figure 7 (left), T6-T18. What is removed is in the name: nothing is read.
func (q queue) Remove(context.Context) (string, error) {
	for {
		elements, err := q.oldestFirst(queueNode)
		if err != nil {
			return "", fmt.Errorf("listing the queue: %w", err)
		}
		for _, e := range elements {
			q.tally.Calls.Add(1)
			err := q.conn.Delete(queueNode+"/"+e, -1)
			if err == nil {
				return strings.TrimSuffix(e, "-"+sequence(e)), nil
			}
			if !errors.Is(err, zk.ErrNoNode) {
				return "", fmt.Errorf("removing %s: %w", e, err)
			}
			q.tally.Retries.Add(1)
		}
		if len(elements) == 0 {
			q.tally.Retries.Add(1)
		}
	}
}
