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
// authentication every user has one. Where there has been no leader for as long as a
// request may take, they don't wait for one: the watches of a stream are opened one after
// the other.
func (n *Node) plainWatch(ctx context.Context, c *core, r *pb.WatchCreateRequest, who identity) error {
	client, _, err := n.client(ctx, c, who.user)
	if client == "" || err != nil {
		return nil // the hub decides
	}
	sent, _ := n.cfg.Caller(ctx)
	if lost := n.unled.Load(); sent == "" && lost != 0 && n.clock()-lost > int64(n.cfg.requestTimeout()) && c.replica.Leader() == 0 {
		return nil
	}
	_, err = n.strictPlain(ctx, c.machine.Placement().Range(r.GetKey(), r.GetRangeEnd()), command.Watch, r, who)
	if errors.Is(err, fault.Timeout) {
		if sent == "" {
			return nil
		}
		return fault.Uncertain.With("stoa: " + err.Error() + " while an extension was looked for")
	}
	return err
}
