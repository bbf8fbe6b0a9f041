package recipes

import (
	"context"
	"fmt"
	"strings"

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
//   - what somebody else owns stays as it is, and is acknowledged. To replace that,
//     delete it first.
//
// On a server without extensions it fails.
func Register(ctx context.Context, kv KV, names ...string) error {
	for _, name := range names {
		source := extensions.Source(name)
		if source == "" {
			return fmt.Errorf("recipes: there is no %q; there are %s", name, strings.Join(extensions.Names(), ", "))
		}
		if err := register(ctx, kv, name, source); err != nil {
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
		err = register(ctx, kv, name, source)
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
	there := one(resp)
	mine := false
	if there != nil {
		if mine, err = owns(ctx, kv, name); err != nil {
			return err
		}
	}
	// A client that puts the same source at the same time leaves the owner as it is, so
	// who that is has to be asked afterwards.
	if there == nil || mine && string(there.Value) != source {
		if _, err := kv.Put(ctx, managerPrefix+name, source); err != nil {
			return err
		}
		if mine, err = owns(ctx, kv, name); err != nil {
			return err
		}
	}
	if mine {
		return nil
	}
	_, err = kv.Put(ctx, managerPrefix+name+"/ack", "")
	return err
}

func owns(ctx context.Context, kv KV, name string) (bool, error) {
	resp, err := kv.Get(ctx, managerPrefix+name+"/owner")
	if err != nil {
		return false, err
	}
	owner := one(resp)
	if owner == nil {
		return false, fmt.Errorf("%s%s has no owner: %w", managerPrefix, name, ErrUnhandled)
	}
	return string(owner.Value) == caller(ctx), nil
}
