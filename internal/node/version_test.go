package node

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

func (c *cluster) list(i int) *membership.List { return c.nodes[i].core.Load().machine.Membership() }

// agreed waits until all servers have the version, and what members announce at it.
func (c *cluster) agreed(l version.Level) {
	c.t.Helper()
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		require.Eventually(c.t, func() bool {
			list := c.list(i)
			return list.Level == l && (!list.AnnouncesReleases() || len(list.Releases) == len(list.Members))
		}, time.Minute, 10*time.Millisecond, "server %d has %v, want %v", i, c.list(i), l)
	}
}

// as has a server restarted with a release that knows certain levels.
func (c *cluster) as(i int, k version.Known) {
	c.stop(i)
	c.configs[i].Known = k
	c.start(i)
}

func (c *cluster) level(i int) version.Level {
	b, err := backend.Open(filepath.Join(c.configs[i].DataDir, "member", "snap", "db"), backend.Options{ReadOnly: true})
	require.NoError(c.t, err)
	defer b.Close()
	m, err := b.Meta()
	require.NoError(c.t, err)
	return m.Level
}

func (c *cluster) downgrade(i int, a pb.DowngradeRequest_DowngradeAction, to version.Level) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := c.nodes[i].Downgrade(ctx, a, to)
		cancel()
		if !fault.Passing(err) {
			return err
		}
	}
}

// The version follows the last member that is upgraded, and a downgrade the first that goes
// back; files and announcements follow the version.
func TestTheVersionFollowsTheMembers(t *testing.T) {
	t.Parallel()
	second := version.Known{Oldest: 1, Newest: 2} // the release that brought announcements
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			c := newCluster(t, 3, partitions, func(cfg *Config) { cfg.Known = version.First })
			c.ready()
			c.put(0, "k", "v")
			for i := range 3 {
				time.Sleep(2 * versionInterval) // it doesn't rise; if it did wrongly, later checks would fail as well
				require.Equal(t, version.Level(1), c.list(i).Level)
				require.Empty(t, c.list(i).Releases)
				c.as(i, second)
				c.ready()
			}
			c.agreed(2)
			require.Equal(t, map[uint64]string{1: version.Stoa, 2: version.Stoa, 3: version.Stoa}, c.list(0).Releases)

			c.stop(1)
			require.Equal(t, version.Level(2), c.level(1))
			c.start(1)
			c.ready()
			require.Equal(t, version.Level(2), c.list(1).Level, "from the file")
			c.agreed(2)

			require.ErrorIs(t, c.downgrade(0, pb.DowngradeRequest_ENABLE, 2), fault.BadDowngradeTarget)
			require.ErrorIs(t, c.downgrade(0, pb.DowngradeRequest_CANCEL, 0), fault.NoDowngrade)
			require.NoError(t, c.downgrade(1, pb.DowngradeRequest_VALIDATE, 1))
			c.agreed(2)
			require.NoError(t, c.downgrade(1, pb.DowngradeRequest_ENABLE, 1))
			c.agreed(1)
			require.Empty(t, c.list(0).Releases)
			require.ErrorIs(t, c.downgrade(2, pb.DowngradeRequest_ENABLE, 1), fault.DowngradeInProcess)
			for i := range 3 {
				require.True(t, c.list(i).Downgrading)
				c.stop(i)
				require.Equal(t, version.Level(1), c.level(i))
				c.start(i)
				c.ready()
				require.Equal(t, version.Level(1), c.list(i).Level)
				require.True(t, c.list(i).Downgrading, "from the file")
			}
			for i := range 3 {
				c.as(i, version.First)
				c.ready()
				require.Eventually(t, func() bool { return !c.list(2 - i).Downgrading }, time.Minute, 10*time.Millisecond,
					"a member of the earlier release holds the version down by itself")
			}
			require.Equal(t, version.Level(1), c.list(0).Level)
			c.put(0, "k", "w")
			for i := range 3 {
				c.as(i, second)
				c.ready()
			}
			c.agreed(2)
			require.Equal(t, "w", string(c.get(2, "k", "").Kvs[0].Value))
		})
	}
}

func TestACancelledDowngradeLetsTheVersionRise(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	require.NoError(t, c.downgrade(0, pb.DowngradeRequest_ENABLE, version.Newest-1))
	_, downgrading := c.nodes[0].ClusterVersion()
	require.True(t, downgrading)
	require.NoError(t, c.downgrade(0, pb.DowngradeRequest_CANCEL, 0))
	c.agreed(version.Newest)
}

// A member of a release that doesn't know the version can't take part, and hurts no other.
func TestAMemberOfAnEarlierReleaseIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	c.agreed(version.Newest)
	c.as(2, version.First)
	connected := func() bool { return c.nodes[0].transport.Connected(3) || c.nodes[2].transport.Connected(1) }
	require.Eventually(t, func() bool { return !connected() }, time.Minute, 10*time.Millisecond, "the link of before")
	require.Never(t, connected, 2*time.Second, 50*time.Millisecond)
	c.put(0, "k", "v")
	c.as(2, version.This)
	c.ready()
	require.Len(t, c.get(2, "k", "").Kvs, 1)
}
