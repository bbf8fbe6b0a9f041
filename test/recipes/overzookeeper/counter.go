package overzookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const counterNode = "/ctr"

type counter struct{ *Kit }

func (k *Kit) Counter() recipe.Counter { return counter{k} }

// Increment is figure 5 (top); the version that was read is the condition (table 2).
func (c counter) Increment(context.Context) (int64, error) {
	for {
		n, version, err := c.read()
		if err != nil {
			return 0, err
		}
		c.tally.Calls.Add(1)
		_, err = c.conn.Set(counterNode, strconv.AppendInt(nil, n+1, 10), version)
		if err == nil {
			return n + 1, nil
		}
		if !errors.Is(err, zk.ErrBadVersion) {
			return 0, fmt.Errorf("incrementing: %w", err)
		}
		c.tally.Retries.Add(1)
	}
}

// Value is read behind everything that was written before: behind a write of its own. A
// sync is no vote, and once the counter stood one too low behind it.
func (c counter) Value(context.Context) (int64, error) {
	if _, err := c.conn.Set("/", nil, -1); err != nil {
		return 0, fmt.Errorf("reading the counter: %w", err)
	}
	n, _, err := c.read()
	return n, err
}

func (c counter) read() (n int64, version int32, err error) {
	c.tally.Calls.Add(1)
	data, stat, err := c.conn.Get(counterNode)
	if errors.Is(err, zk.ErrNoNode) {
		// Made a moment ago through another server, which this one lags behind.
		if _, err = c.conn.Sync(counterNode); err == nil {
			data, stat, err = c.conn.Get(counterNode)
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the counter: %w", err)
	}
	n, err = strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the counter: %w", err)
	}
	return n, stat.Version, nil
}
