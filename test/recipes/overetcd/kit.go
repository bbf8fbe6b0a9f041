// Package overetcd builds the recipes in the traditional way over the v3 API of etcd,
// for real etcd and for any server in its place. They follow the figures of the paper,
// with what etcd offers for each step: a transaction on the key's mod revision is the
// compare-and-set, the order of create revisions that of creation, a watch from the
// revision of the last read the wait that misses nothing.
package overetcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
	"github.com/stoa-kv/stoa/test/recipes/socket"
)

// Kit is one participant. Its keys lie under root.
type Kit struct {
	client *clientv3.Client
	root   string
	lease  clientv3.LeaseID // the session, once an election has needed one
	tally  recipe.Tally
}

// Dial makes a participant with one connection to one server.
func Dial(endpoint, root string, tap *socket.Tap) (*Kit, error) {
	c, err := Connect(endpoint, tap)
	if err != nil {
		return nil, err
	}
	return &Kit{client: c, root: root}, nil
}

// Connect opens a client that talks to this server alone and is counted by the tap.
func Connect(endpoint string, tap *socket.Tap) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(tap.DialGRPC)},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	Hold(c)
	return c, nil
}

// Hold keeps one watch open that never fires. Etcd's client closes the stream of its
// watches with the last of them and opens another for the next; a participant that
// waits again and again would pay for that each time, with any server.
func Hold(c *clientv3.Client) {
	never := c.Watch(c.Ctx(), "/never")
	go func() {
		for range never {
		}
	}()
}

func (k *Kit) Tally() *recipe.Tally { return &k.tally }

func (k *Kit) Close() error { return k.client.Close() }

// Reset removes the keys of the recipe.
func (k *Kit) Reset(ctx context.Context, name string, _ int) error {
	prefixes := map[string][]string{
		"counter":  {counterKey},
		"queue":    {queuePrefix},
		"barrier":  {barrierPrefix, readyKey},
		"election": {leaderPrefix},
	}
	for _, p := range prefixes[name] {
		if _, err := k.client.Delete(ctx, k.root+p, clientv3.WithPrefix()); err != nil {
			return fmt.Errorf("resetting the %s: %w", name, err)
		}
	}
	return nil
}

// wait returns at the first event of the watched kind, not before rev.
func (k *Kit) wait(ctx context.Context, key string, rev int64, options ...clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.tally.Calls.Add(1)
	for resp := range k.client.Watch(ctx, key, append(options, clientv3.WithRev(rev))...) {
		if err := resp.Err(); err != nil {
			return err
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the watch of %s ended: %w", key, context.Cause(ctx))
}
