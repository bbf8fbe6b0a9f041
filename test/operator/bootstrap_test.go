package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// The members of a new cluster may be started at any times.
func TestMembersStartedOneByOne(t *testing.T) {
	c := process.NewT(t, process.Spec{Nodes: 3})
	one, two, three := c.Servers[0], c.Servers[1], c.Servers[2]
	require.NoError(t, one.Start())
	notReady(t, one, time.Second)
	// Killed and started again before there is a cluster.
	require.NoError(t, one.Kill())
	require.NoError(t, one.Start())
	require.NoError(t, two.Start())
	ready(t, one)
	ready(t, two)
	put(t, one, "first", 20)
	// Late, and again.
	require.NoError(t, three.Start())
	ready(t, three)
	requireKeys(t, three, "first", 20)
	require.NoError(t, three.Kill())
	require.NoError(t, one.Kill())
	require.NoError(t, three.Start())
	ready(t, three)
	put(t, three, "second", 5)
}

// A late member needs the word of a majority of the others, which excludes that it has
// been there before.
func TestLateMemberWhileAnotherIsDown(t *testing.T) {
	requireStoa(t)
	c := process.NewT(t, process.Spec{Nodes: 3})
	one, two, three := c.Servers[0], c.Servers[1], c.Servers[2]
	require.NoError(t, one.Start())
	require.NoError(t, two.Start())
	ready(t, one)
	put(t, one, "first", 20)
	require.NoError(t, two.Kill())
	require.NoError(t, three.Start())
	awaitLog(t, three, 0, "waiting for other members")
	require.Contains(t, said(three, 0), "s2 ("+two.PeerURL+")")
	notReady(t, three, 100*time.Millisecond)
	require.NoError(t, two.Start())
	ready(t, three)
	requireKeys(t, three, "first", 20)
}

func TestAnotherTokenOrInitialCluster(t *testing.T) {
	requireStoa(t)
	t.Run("beside a cluster", func(t *testing.T) {
		c := process.NewT(t, process.Spec{Nodes: 3})
		one, two, three := c.Servers[0], c.Servers[1], c.Servers[2]
		require.NoError(t, one.Start())
		require.NoError(t, two.Start())
		ready(t, one)
		refuses(t, three.With("--initial-cluster-token=another"), "is of another cluster", "--initial-cluster-token=another")
		urls := fmt.Sprintf("s1=%s,s3=%s", one.PeerURL, three.PeerURL)
		refuses(t, three.With("--initial-cluster="+urls), "is of another cluster", "--initial-cluster="+urls)
		require.NoError(t, three.Start())
		ready(t, three)
	})
	t.Run("all new", func(t *testing.T) {
		c := process.NewT(t, process.Spec{Nodes: 2})
		one, two := c.Servers[0], c.Servers[1].With("--initial-cluster-token=another")
		t.Cleanup(func() { two.Kill() })
		require.NoError(t, one.Start())
		require.NoError(t, two.Start())
		awaitLog(t, one, 0, "it was started with --initial-cluster-token=another and this member with --initial-cluster-token=")
		awaitLog(t, two, 0, "and this member with --initial-cluster-token=another")
		// Once they agree they begin.
		require.NoError(t, two.Kill())
		require.NoError(t, c.Servers[1].Start())
		ready(t, one)
	})
	t.Run("a peer URL of another cluster", func(t *testing.T) {
		other := process.StartT(t, process.Spec{}).Servers[0]
		s := process.NewT(t, process.Spec{Nodes: 2}).Servers[0]
		refuses(t, s.With(fmt.Sprintf("--initial-cluster=s1=%s,s2=%s", s.PeerURL, other.PeerURL)), other.PeerURL, "is of another cluster")
	})
}

func TestExistingWithoutData(t *testing.T) {
	requireStoa(t)
	c := process.NewT(t, process.Spec{Nodes: 2, Args: []string{"--initial-cluster-state=existing"}})
	for _, s := range c.Servers {
		require.NoError(t, s.Start())
	}
	awaitLog(t, c.Servers[0], 0, "--initial-cluster-state is existing")
	notReady(t, c.Servers[1], 100*time.Millisecond)
}

// The number of partitions that a cluster has begun with counts.
func TestNumberOfPartitions(t *testing.T) {
	requireStoa(t)
	parts := func(s *process.Server, n int) *process.Server {
		s = s.With(fmt.Sprintf("--partitions=%d", n))
		t.Cleanup(func() { s.Kill() })
		return s
	}
	t.Run("new members that disagree", func(t *testing.T) {
		c := process.NewT(t, process.Spec{Nodes: 3})
		one, two := parts(c.Servers[0], 2), parts(c.Servers[1], 3)
		require.NoError(t, one.Start())
		require.NoError(t, two.Start())
		awaitLog(t, one, 0, "it was started with --partitions=3 and this member with --partitions=2")
		awaitLog(t, two, 0, "it was started with --partitions=2 and this member with --partitions=3")
		three := parts(c.Servers[2], 2)
		require.NoError(t, three.Start())
		ready(t, one)
		ready(t, three)
		ready(t, two) // it has taken what the two others agree on
		require.Contains(t, said(two, 0), `"partitions":2,"asked-for":3`)
		put(t, two, "first", 10)

		// At a restart the data counts.
		require.NoError(t, three.Kill())
		other := parts(c.Servers[2], 5)
		from := logged(other)
		require.NoError(t, other.Start())
		ready(t, other)
		require.Contains(t, said(other, from), "--partitions is ignored")
		requireKeys(t, other, "first", 10)
	})
	t.Run("none given", func(t *testing.T) {
		c := process.NewT(t, process.Spec{Nodes: 3})
		for i, s := range c.Servers {
			c.Servers[i] = s.Env(fmt.Sprintf("GOMAXPROCS=%d", i+1)) // machines of different sizes
			require.NoError(t, c.Servers[i].Start())
		}
		for _, s := range c.Servers {
			ready(t, s)
		}
	})
}

func restartFlags(c *process.Cluster, s *process.Server) *process.Server {
	return s.Without("--initial-", "--name", "--partitions")
}

// With data there, the --initial flags are ignored.
func TestRestartWithoutInitialFlags(t *testing.T) {
	c := process.StartT(t, process.Spec{Nodes: 3})
	put(t, c.Servers[0], "first", 20)
	for _, s := range c.Servers {
		_, _, err := s.Stop()
		require.NoError(t, err)
	}
	for i, s := range c.Servers {
		c.Servers[i] = restartFlags(c, s)
		t.Cleanup(func() { c.Servers[i].Kill() })
		require.NoError(t, c.Servers[i].Start())
	}
	for _, s := range c.Servers {
		ready(t, s)
	}
	requireKeys(t, c.Servers[2], "first", 20)
	put(t, c.Servers[1], "second", 5)
	list, err := client(t, c.Servers[0]).MemberList(t.Context())
	require.NoError(t, err)
	if bin, _ := process.UnderTest(); bin.Stoa { // etcd renames it to "default"
		for _, m := range list.Members {
			require.NotEqual(t, "default", m.Name)
		}
	}
	// Nor do they matter if they are wrong.
	s := c.Servers[2]
	_, _, err = s.Stop()
	require.NoError(t, err)
	s = s.With("--initial-cluster=nonsense", "--initial-cluster-token=another", "--initial-cluster-state=existing")
	t.Cleanup(func() { s.Kill() })
	require.NoError(t, s.Start())
	ready(t, s)
	requireKeys(t, s, "second", 5)
}

// The list of members has the last word on peer URLs, as in etcd; stoa says so.
func TestRestartWithOtherPeerURLs(t *testing.T) {
	c := process.StartT(t, process.Spec{Nodes: 3})
	put(t, c.Servers[0], "first", 20)
	s := c.Servers[2]
	_, _, err := s.Stop()
	require.NoError(t, err)
	s = s.With("--initial-advertise-peer-urls=http://127.0.0.1:1")
	t.Cleanup(func() { s.Kill() })
	require.NoError(t, s.Start())
	ready(t, s)
	requireKeys(t, s, "first", 20)
	list, err := client(t, s).MemberList(t.Context())
	require.NoError(t, err)
	for _, m := range list.Members {
		require.NotContains(t, m.PeerURLs, "http://127.0.0.1:1")
	}
	if bin, _ := process.UnderTest(); bin.Stoa {
		log := said(s, 0)
		require.Equal(t, 1, strings.Count(log, "--initial-advertise-peer-urls is ignored"))
		require.Contains(t, log, s.PeerURL)
	}
}
