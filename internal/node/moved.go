package node

import (
	"context"
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
)

// routed carries out a request that was routed by this server's partition map,
// and again if that has changed meanwhile: fault.Moved means that the request
// had no effect. A server that learns of the change later than the one that
// answered tries until it has.
func routed[R any](ctx context.Context, n *Node, do func(*core) (R, error)) (R, error) {
	var deadline time.Time
	for {
		var none R
		c, err := n.present(ctx)
		if err != nil {
			return none, err
		}
		known := c.machine.Placement()
		r, err := do(c)
		if !errors.Is(err, fault.Moved) {
			return r, err
		}
		switch {
		case deadline.IsZero():
			deadline = time.Now().Add(n.cfg.requestTimeout())
		case time.Now().After(deadline):
			return none, fault.Timeout
		}
		if n.core.Load().machine.Placement() != known {
			continue // the way is already known
		}
		if err := n.pause(ctx, shortly); err != nil {
			return none, err
		}
	}
}
