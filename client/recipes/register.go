package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/extensions"
)

// managerPrefix is where extensions are registered.
const managerPrefix = "/em/"

// Register makes sure that the recipes of these names (counter, queue, barrier, election,
// semaphore, ratelimit, rename, balancer, tuplespace) are registered and that this client
// may use them. Any number of clients may do so at once, and again at every start:
//
//   - what isn't registered is, and the client is its owner;
//   - what this client owns is replaced if it differs from the program in this package;
//   - what another client owns stays as it is, and is acknowledged. To replace it,
//     delete it first.
//
// With authentication, election, semaphore and queue pass the leases of several users' clients on only
// if a user with the role root has registered them; see extensions/README.md.
//
// On a server without extensions it fails.
func Register(ctx context.Context, kv KV, names ...string) error {
	for _, name := range names {
		source := extensions.Source(name)
		if source == "" {
			return fmt.Errorf("recipes: there is no %q; there are %s", name, strings.Join(extensions.Names(), ", "))
		}
		if err := register(ctx, handle{kv: kv}, name, source); err != nil {
			return fmt.Errorf("recipes: registering the %s: %w", name, err)
		}
	}
	return nil
}

// RegisterAt is Register of one recipe under another name, with its keys at another root:
// RegisterAt(ctx, cli, "jobs", "queue", "/jobs/") makes what NewQueue(cli, "/jobs/") uses.
func RegisterAt(ctx context.Context, kv KV, name, recipe, root string) error {
	source, err := extensions.SourceAt(recipe, root)
	if err == nil {
		err = register(ctx, handle{kv: kv}, name, source)
	}
	if err != nil {
		return fmt.Errorf("recipes: registering the %s as %s: %w", recipe, name, err)
	}
	return nil
}

func register(ctx context.Context, kv KV, name, source string) error {
	resp, err := kv.Get(ctx, managerPrefix+name)
	if err != nil {
		return err
	}
	if there := one(resp); there == nil {
		_, err = kv.Put(ctx, managerPrefix+name, source)
	} else if string(there.Value) != source {
		err = replace(ctx, kv, name, source)
	}
	if err != nil {
		return err
	}
	// Another client may have put the same source a moment before: it is the owner then.
	_, err = acknowledge(ctx, kv, name)
	return err
}

// replace puts a new source in the place of one that this client owns.
func replace(ctx context.Context, kv KV, name, source string) error {
	mine, err := acknowledge(ctx, kv, name)
	if err == nil && mine {
		_, err = kv.Put(ctx, managerPrefix+name, source)
	}
	return err
}

// acknowledge lets the extension handle this client's calls, and tells whether the client
// is its owner. The name by which the servers know the client is that of the key which
// the acknowledgement has made.
func acknowledge(ctx context.Context, kv KV, name string) (mine bool, err error) {
	home := managerPrefix + name + "/"
	put, err := kv.Put(ctx, home+"ack", "")
	if err != nil {
		return false, err
	}
	resp, err := getAt(ctx, kv, put.Header.Revision, home, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	owner, me := "", ""
	for _, kv := range resp.Kvs {
		switch key := strings.TrimPrefix(string(kv.Key), home); {
		case key == "owner":
			owner = string(kv.Value)
		case kv.ModRevision == put.Header.Revision:
			me, _ = strings.CutPrefix(key, "ack/")
		}
	}
	if owner == "" {
		return false, fmt.Errorf("%s has no owner: %w", managerPrefix+name, ErrUnhandled)
	}
	return me == owner, nil
}

// getAt reads at a revision that has been written. A client's reads may be
// answered by a member that has to catch up first.
func getAt(ctx context.Context, kv KV, revision int64, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	opts = append(opts, clientv3.WithRev(revision))
	for {
		resp, err := kv.Get(ctx, key, opts...)
		if !errors.Is(err, rpctypes.ErrFutureRev) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
