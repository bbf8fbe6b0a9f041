package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Partitions in which nothing is written don't keep the log of what is written in another.
func TestLogOfIdlePartitions(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c := newCluster(t, size, 4, func(c *Config) { c.CatchUpBytes = 1 << 20 })
			c.ready()
			value := strings.Repeat("x", 64<<10)
			for range 200 {
				c.put(0, "/a/b", value)
			}
			for _, n := range c.nodes {
				log := n.core.Load().wal
				require.Eventually(t, func() bool { return log.Size() < 4<<20 }, time.Minute, 20*time.Millisecond)
			}
			last := c.put(0, "/a/b", "y")
			for i := range c.nodes {
				c.stop(i)
			}
			for i := range c.nodes {
				c.start(i)
			}
			c.ready()
			got := c.get(0, "/a/b", "").Kvs
			require.Len(t, got, 1)
			require.Equal(t, "y", string(got[0].Value))
			require.Equal(t, last, got[0].ModRevision)
		})
	}
}
