package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

type clientKey struct{}

// A server without a leader can't know whether an extension would handle a watch. It takes it for a plain one unless the
// client has sent an ID, as those do who use extensions: a user has one without that.
func TestWatchesOfUsersWithoutALeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, simpleTokens, func(c *Config) {
		c.Caller = func(ctx context.Context) (string, int64) {
			client, _ := ctx.Value(clientKey{}).(string)
			return client, 0
		}
	})
	c.ready()
	c.addRoot()
	c.enable(0)
	user := withToken(t.Context(), c.token(0, "root"))
	_, err := c.nodes[1].Range(user, &pb.RangeRequest{Key: []byte("k")})
	require.NoError(t, err)
	c.stop(0)
	open := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Millisecond, fault.Timeout)
		defer cancel()
		_, _, err := c.nodes[1].OpenWatch(ctx, &pb.WatchCreateRequest{Key: []byte("k")})
		return err
	}
	require.NoError(t, open(user))
	require.ErrorIs(t, open(context.WithValue(user, clientKey{}, "root/1")), fault.Uncertain)

	n := c.nodes[1]
	require.Eventually(t, func() bool { // for good: the other may have handed its leadership over, and a leader without others leads for a while
		lost := n.unled.Load()
		return lost != 0 && n.clock()-lost > int64(4*n.cfg.Election)
	}, time.Minute, 10*time.Millisecond)
	n.unled.Store(n.clock() - int64(n.cfg.requestTimeout()) - 1)
	began := time.Now()
	for range 10 {
		_, _, err := n.OpenWatch(user, &pb.WatchCreateRequest{Key: []byte("k")})
		require.NoError(t, err)
	}
	require.Less(t, time.Since(began), n.cfg.requestTimeout())
	require.ErrorIs(t, open(context.WithValue(user, clientKey{}, "root/1")), fault.Uncertain)
	c.start(0)
	require.Eventually(t, func() bool { return n.unled.Load() == 0 }, 20*time.Second, 10*time.Millisecond)
}
