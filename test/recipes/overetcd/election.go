package overetcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const leaderPrefix = "/leader/"

// SessionTTL outlives any pause of a busy machine.
const SessionTTL = 60 * time.Second

type election struct {
	*Kit
	key string
}

func (k *Kit) Election(ctx context.Context, id string) (recipe.Election, error) {
	if k.lease == 0 {
		var err error
		if k.lease, err = Session(ctx, k.client); err != nil {
			return nil, err
		}
	}
	return &election{Kit: k, key: k.root + leaderPrefix + id}, nil
}

// Session is a lease that is kept alive until the client is closed.
func Session(ctx context.Context, c *clientv3.Client) (clientv3.LeaseID, error) {
	lease, err := c.Grant(ctx, int64(SessionTTL/time.Second))
	if err != nil {
		return 0, fmt.Errorf("opening a session: %w", err)
	}
	alive, err := c.KeepAlive(context.Background(), lease.ID)
	if err != nil {
		return 0, fmt.Errorf("opening a session: %w", err)
	}
	go func() {
		for range alive {
		}
	}()
	return lease.ID, nil
}

// Campaign is figure 11 (left), with the wait for one's predecessor alone that keeps
// the herd away (footnote 2 of the paper; etcd's own concurrency.Election does the same).
func (e *election) Campaign(ctx context.Context) error {
	e.tally.Calls.Add(1)
	put, err := e.client.Put(ctx, e.key, "", clientv3.WithLease(e.lease))
	if err != nil {
		return fmt.Errorf("registering as a candidate: %w", err)
	}
	before := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(put.Header.Revision-1), clientv3.WithKeysOnly())
	for {
		e.tally.Calls.Add(1)
		resp, err := e.client.Get(ctx, e.root+leaderPrefix, before...)
		if err != nil {
			return fmt.Errorf("looking for the predecessor: %w", err)
		}
		if len(resp.Kvs) == 0 {
			return nil
		}
		err = e.wait(ctx, string(resp.Kvs[0].Key), resp.Header.Revision+1, clientv3.WithFilterPut())
		if err != nil {
			return err
		}
	}
}

func (e *election) Resign(ctx context.Context) error {
	e.tally.Calls.Add(1)
	if _, err := e.client.Delete(ctx, e.key); err != nil {
		return fmt.Errorf("resigning: %w", err)
	}
	return nil
}
