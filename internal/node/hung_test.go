package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A leader whose disk hangs has others lead, within the time of a request, and goes on behind them when it doesn't hang any more.
func TestALeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	var d [3]sync.Mutex // held by the disks that hang
	c := newCluster(t, 3, 2, func(c *Config) {
		mine := &d[c.ID-1]
		c.Observe.WALSync = func(time.Duration) {
			mine.Lock()
			defer mine.Unlock()
		}
	})
	c.ready()
	c.put(0, "/k", "before")
	at := c.leading()
	d[at].Lock()
	wakes := sync.OnceFunc(d[at].Unlock)
	defer wakes()
	other := (at + 1) % 3
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.nodes[other].Put(ctx, &pb.PutRequest{Key: []byte("/k"), Value: []byte("after")})
		return err == nil
	}, 40*time.Second, 10*time.Millisecond)
	require.NotEqual(t, at, c.leader())
	require.Equal(t, "after", string(c.value(other, "/k")))
	wakes()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := c.nodes[at].Range(ctx, &pb.RangeRequest{Key: []byte("/k")})
		return err == nil && len(resp.Kvs) == 1 && string(resp.Kvs[0].Value()) == "after"
	}, 40*time.Second, 10*time.Millisecond)
}
