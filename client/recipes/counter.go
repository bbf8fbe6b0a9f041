package recipes

import (
	"context"
	"fmt"
	"strconv"
)

// Counter is a number that any number of clients add to.
type Counter struct {
	kv          handle
	key, adding string
}

// NewCounter returns the counter of a name; "" is the one that is the root itself.
func NewCounter(kv KV, root, name string) *Counter {
	root = rootOf("counter", root)
	if name != "" {
		name = "/" + name
	}
	return &Counter{kv: handle{kv: kv}, key: root + name, adding: root + "-increment" + name}
}

// Add adds n, which may be negative, and returns the new number. A counter begins at 0.
// A sum that doesn't fit into 64 bits is an error and changes nothing.
func (c *Counter) Add(ctx context.Context, n int64) (int64, error) {
	sum, err := callNumber(ctx, c.kv, c.adding, strconv.FormatInt(n, 10))
	if err != nil {
		return 0, fmt.Errorf("recipes: adding to %s: %w", c.key, err)
	}
	return sum, nil
}

// Value reads the counter. It is a plain read of a key.
func (c *Counter) Value(ctx context.Context) (int64, error) {
	resp, err := c.kv.Get(ctx, c.key)
	if err != nil {
		return 0, fmt.Errorf("recipes: reading %s: %w", c.key, err)
	}
	kv := one(resp)
	if kv == nil {
		return 0, nil
	}
	n, err := number(kv)
	if err != nil {
		return 0, fmt.Errorf("recipes: reading %s: %w", c.key, err)
	}
	return n, nil
}
