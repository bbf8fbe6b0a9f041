package byextension

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/recipes/overetcd"
	"github.com/stoa-kv/stoa/test/recipes/socket"
)

// ErrNone says that the server treats /em/ as keys like any other.
var ErrNone = errors.New("the server runs no extensions")

// managerPrefix is where extensions are registered, by an ordinary put.
const managerPrefix = "/em/"

// Register puts the extension of a recipe, read from dir, and makes sure that the
// server took it for one.
func Register(ctx context.Context, endpoint, dir, name string) error {
	source, err := os.ReadFile(filepath.Join(dir, name+".lua"))
	if err != nil {
		return fmt.Errorf("registering the %s: %w", name, err)
	}
	c, err := overetcd.Connect(endpoint, &socket.Tap{})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Put(ctx, managerPrefix+name, string(source)); err != nil {
		return fmt.Errorf("registering the %s: %w", name, err)
	}
	if err := enabled(ctx, c, name); err != nil {
		return fmt.Errorf("registering the %s: %w", name, err)
	}
	return nil
}

// enabled looks at what the server notes beside a source that it took for one: its
// owner, and its state where that isn't "enabled".
func enabled(ctx context.Context, c *clientv3.Client, name string) error {
	owner, err := c.Get(ctx, managerPrefix+name+"/owner")
	if err != nil {
		return err
	}
	if len(owner.Kvs) == 0 {
		return ErrNone
	}
	state, err := c.Get(ctx, managerPrefix+name+"/state")
	if err != nil {
		return err
	}
	if len(state.Kvs) == 1 && string(state.Kvs[0].Value) != "enabled" {
		return fmt.Errorf("its state is %q", state.Kvs[0].Value)
	}
	return nil
}
