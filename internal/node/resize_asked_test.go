package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// All that operators and metrics ask for, and what concerns all partitions, goes on while their number changes,
// and each answer is of one number.
func TestAskedWhileResizing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 2, func(cfg *Config) { cfg.Balance = true })
	c.ready()
	c.agreed(version.Newest)
	ctx, cancel := context.WithCancel(context.Background())
	var asking, unanswered sync.WaitGroup
	ask := func(what string, do func(n *Node, k int) error) {
		for i, n := range c.nodes {
			unanswered.Add(1)
			answered := sync.OnceFunc(unanswered.Done)
			asking.Go(func() {
				defer answered()
				for k := 0; ctx.Err() == nil; k++ {
					err := do(n, k)
					if err == nil {
						answered()
					} else if ctx.Err() == nil && !fault.Passing(err) {
						t.Errorf("%s at server %d: %v", what, i, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	ask("put", func(n *Node, k int) error {
		_, err := n.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "/dir%d/key", k%50), Value: []byte("v")})
		return err
	})
	ask("state", func(n *Node, _ int) error {
		s := n.State()
		slots := 0
		for _, p := range s.Partitions {
			slots += p.Slots
		}
		if slots != 1024 {
			return fmt.Errorf("%d partitions have %d slots", len(s.Partitions), slots)
		}
		return nil
	})
	ask("balance", func(n *Node, _ int) error {
		_, err := n.Balance(ctx, true)
		return err
	})
	ask("status", func(n *Node, _ int) error {
		_, err := n.Status(ctx)
		return err
	})
	ask("hash of keys", func(n *Node, _ int) error {
		_, err := n.HashKV(ctx, 0)
		return err
	})
	ask("hash", func(n *Node, _ int) error {
		_, _, err := n.Hash(ctx)
		return err
	})
	ask("grant and revoke", func(n *Node, _ int) error {
		l, err := n.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 100})
		if err != nil {
			return err
		}
		_, err = n.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.ID})
		return err
	})
	require.Eventually(t, func() bool {
		_, err := c.nodes[0].LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
		return err == nil || errors.Is(err, fault.LeaseExists) // an earlier try has had its effect
	}, time.Minute, time.Millisecond)
	ask("renew", func(n *Node, _ int) error {
		_, err := n.LeaseRenew(ctx, 1)
		return err
	})
	ask("time to live", func(n *Node, _ int) error {
		_, err := n.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
		return err
	})
	ask("alarms", func(n *Node, _ int) error {
		_, err := n.Alarm(ctx, &pb.AlarmRequest{})
		return err
	})
	ask("leases", func(n *Node, _ int) error {
		_, err := n.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}, true)
		return err
	})
	ask("quotas", func(n *Node, _ int) error {
		n.QuotasUsed()
		n.Extensions()
		return n.Health(ctx, true)
	})
	ask("snapshot", func(n *Node, _ int) error {
		content, _, _, err := n.Snapshot(ctx)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, content)
		_ = content.Close()
		return err
	})
	for _, n := range []int{5, 1, 3, 2, 4} {
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, c.nodes[n%2].Resize(context.Background(), n))
	}
	time.Sleep(300 * time.Millisecond)
	unanswered.Wait() // as long as it takes: on a busy machine each attempt may meet another change
	cancel()
	asking.Wait()
}

// Who may not change the number of partitions doesn't keep others waiting by asking for that: the command would end what the leader stamps before
// the log refuses it.
func TestWhoMayNotResizeStopsNothing(t *testing.T) {
	var log logged
	c := newCluster(t, 1, 2, simpleTokens, log.keep)
	c.ready()
	c.addRoot()
	c.addUser("a")
	c.enable(0)
	a := withToken(t.Context(), c.token(0, "a"))
	for _, to := range []int{1, 2, 3} {
		require.ErrorIs(t, c.nodes[0].Resize(a, to), fault.PermissionDenied, to)
	}
	require.Zero(t, log[0].FilterMessage("stopped stamping: this server does not lead every group any more").Len())
	require.NoError(t, c.nodes[0].Resize(withToken(t.Context(), c.token(0, "root")), 3))
}
