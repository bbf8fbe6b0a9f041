package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// What concerns all partitions goes on while their number changes.
func TestSystemCommandsWhileResizing(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.ready()
	c.agreed(version.Newest)
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	ask := func(what string, do func(n *Node) error) {
		for i, n := range c.nodes {
			for range 3 {
				asking.Go(func() {
					for ctx.Err() == nil {
						if err := do(n); err != nil && ctx.Err() == nil && !fault.Passing(err) {
							t.Errorf("%s at server %d: %v", what, i, err)
							return
						}
					}
				})
			}
		}
	}
	ask("grant and revoke", func(n *Node) error {
		l, err := n.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 100})
		if err != nil {
			return err
		}
		_, err = n.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.ID})
		return err
	})
	_, err := c.nodes[0].LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
	require.NoError(t, err)
	ask("renew", func(n *Node) error {
		_, err := n.LeaseRenew(ctx, 1)
		return err
	})
	ask("ttl", func(n *Node) error {
		_, err := n.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
		return err
	})
	ask("alarms", func(n *Node) error {
		_, err := n.Alarm(ctx, &pb.AlarmRequest{})
		return err
	})
	for _, n := range []int{5, 1, 3, 2, 4} {
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, c.nodes[n%2].Resize(context.Background(), n))
	}
	time.Sleep(300 * time.Millisecond)
	cancel()
	asking.Wait()
}
