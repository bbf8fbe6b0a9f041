package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Nothing can be committed before the second one has the members, which it gets from the
// file of the first.
func TestACommandIsCommittedWithAMemberThatJoinsAtTheBeginning(t *testing.T) {
	c := newCluster(t, 2, 2, func(cfg *Config) { cfg.Joins = cfg.ID == 2 })
	c.ready()
	c.put(1, "k", "v")
	require.Len(t, c.get(1, "k", "l").Kvs, 1)
	require.Eventually(t, func() bool {
		m := c.nodes[0].core.Load().machine.Membership().Find(2)
		return m.GetName() == "n1"
	}, 20*time.Second, 10*time.Millisecond)
}

// The server that is behind has never heard of its leader.
func TestALeaderReachesAServerThatDoesNotKnowIt(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.ready()
	c.put(0, "a", "v")
	c.stop(2)
	leader := c.join(0, false)
	id := c.configs[leader].ID
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 2 {
			if c.nodes[i].Leader() == c.nodes[i].MemberID() {
				_ = c.nodes[i].MoveLeader(ctx, id)
			}
		}
		return c.nodes[leader].core.Load().replica.Leading()
	}, 30*time.Second, 50*time.Millisecond)
	c.put(0, "b", "v")
	c.start(2)
	require.Eventually(t, func() bool { return c.nodes[2].core.Load().machine.Membership().Find(id) != nil }, 30*time.Second, 10*time.Millisecond)
	require.Contains(t, c.nodes[2].transport.Peers(), id)
	require.Len(t, c.get(2, "a", "c").Kvs, 2)
}

func TestLinksFollowTheListOfMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 2)
	c.ready()
	next := c.address()
	c.change(func(ctx context.Context) error {
		_, err := c.nodes[0].MemberUpdate(ctx, 2, []string{"http://" + next})
		if slices.Equal(c.nodes[0].core.Load().machine.Membership().Find(2).GetPeerURLs(), []string{"http://" + next}) {
			return nil // the answer may have been lost with the link, which goes to the new URL at once
		}
		return err
	})
	c.stop(1)
	c.addrs[1] = next
	c.start(1)
	c.ready()
	c.put(0, "k", "v")
}

// A server that is removed while it runs is told, and one that is started later.
func TestARemovedServerIsTold(t *testing.T) {
	t.Parallel()
	told := make(chan uint64, 2)
	c := newCluster(t, 3, 2, func(cfg *Config) {
		cfg.Removed = func() { told <- cfg.ID }
	})
	c.ready()
	c.put(0, "k", "v")
	require.False(t, c.nodes[0].isRemoved(3))
	c.change(func(ctx context.Context) error {
		_, err := c.nodes[0].MemberRemove(ctx, 3)
		return err
	})
	for range 2 {
		select {
		case id := <-told:
			require.EqualValues(t, 3, id)
		case <-time.After(30 * time.Second):
			require.Fail(t, "it is not told")
		}
		require.Eventually(t, func() bool { return c.nodes[0].isRemoved(3) && c.nodes[1].isRemoved(3) }, 20*time.Second, 10*time.Millisecond)
		c.stop(2)
		c.start(2)
	}
	c.put(1, "k", "w")
	_, err := c.nodes[0].Put(context.Background(), &pb.PutRequest{Key: []byte("k"), Value: []byte("x")})
	require.NoError(t, err)
}
