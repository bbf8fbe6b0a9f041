package compose

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// behind is for operations on all clusters, which come after all earlier
// requests. It waits for those, at most for half of the time that a cluster has
// for an answer; the context gets the remaining time.
func (c *Client) behind(ctx context.Context) (context.Context, context.CancelFunc, error) {
	timeout := c.core.cfg.Timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	half, stop := context.WithTimeout(ctx, timeout/2)
	defer stop()
	return ctx, cancel, c.flush(half)
}

// flush waits until all earlier requests are answered.
func (c *Client) flush(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	o := c.core
	o.mu.Lock()
	at := o.algo.last
	if n := len(o.queue); n > 0 {
		at = o.queue[n-1].cluster
	}
	o.mu.Unlock()
	if at < 0 {
		return nil
	}
	if err := c.readNothing(ctx, at, read); !errors.Is(err, rpctypes.ErrPermissionDenied) { // which is an answer, too
		return err
	}
	return nil
}

// readNothing makes a read for its place in the order alone: of a key that the user may read, the first of all if it may, for
// that is no extension's, else that of a route. Which it is is remembered.
func (c *Client) readNothing(ctx context.Context, at int, k kind) (err error) {
	of := c.core.links[at].cluster
	keys := c.core.routes.keysIn(of.at)
	first := int(of.readable.Load())
	for i := range keys {
		n := (first + i) % len(keys)
		_, err = c.wait(ctx, &request{placement: placement{cluster: at, message: nothing(keys[n])}, kind: k})
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			of.readable.Store(int32(n))
			return err
		}
	}
	return err
}
