package node

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// plainWatch makes sure that a watch which no extension handles, as far as this
// server knows, is one that no extension handles. The server may not have heard
// yet of what the client has registered or acknowledged through another one,
// and a client that waits for an extension's answer would wait for ever. Only
// named clients pay for it, with a read of the partitions that they watch;
// watches of others open at once, also without a leader, as in etcd. So do, in
// the end, those of clients who haven't sent the name that they have: with
// authentication every user has one.
func (n *Node) plainWatch(ctx context.Context, c *core, r *pb.WatchCreateRequest, who identity) error {
	client, _, err := n.client(ctx, c, who.user)
	if client == "" || err != nil {
		return nil // the hub decides
	}
	c, err = n.strict(ctx, c.machine.Placement().Range(r.GetKey(), r.GetRangeEnd()))
	if errors.Is(err, fault.Timeout) {
		if sent, _ := n.cfg.Caller(ctx); sent == "" {
			return nil
		}
		return fault.Uncertain.With("stoa: " + err.Error() + " while an extension was looked for")
	}
	if err != nil {
		return err
	}
	if _, handled, _ := n.handled(ctx, c, command.Watch, r, who); handled {
		return fault.Moved // this server has just learned of it
	}
	return nil
}
