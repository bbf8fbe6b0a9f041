package byextension

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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

// enabled waits for the state that the server notes beside the source.
func enabled(ctx context.Context, c *clientv3.Client, name string) error {
	for range 20 {
		resp, err := c.Get(ctx, managerPrefix+name+"/state")
		if err != nil {
			return err
		}
		if len(resp.Kvs) == 1 {
			if state := string(resp.Kvs[0].Value); state != "enabled" {
				return fmt.Errorf("its state is %q", state)
			}
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ErrNone
}
