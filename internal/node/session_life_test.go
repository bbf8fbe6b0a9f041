package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/session"
)

// A session outlives each request that was answered by its whole ttl: also one that came
// soon after the session was opened, wherever it was answered, and beside a change of
// leader.
func TestEveryAnswerIsASignOfLife(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for leases to end")
	}
	c := newCluster(t, 3, 2)
	c.ready()
	leader := c.leading()
	type place struct {
		name  string
		on    int
		level stoapb.Level
	}
	outlives := func(t *testing.T, at place, before func()) time.Duration {
		s := newSessionClient(c, at.on)
		s.ttl = 4
		s.open(0)
		defer s.handle.Close()
		ttl := time.Duration(s.ttl) * time.Second
		key := "/ephemeral/" + at.name
		s.send(askEphemeral(key, s.id))
		s.waitForReplies(0)
		time.Sleep(ttl / 5)
		sent := time.Now()
		s.send(askGet(key, at.level))
		s.waitForReplies(0)
		require.NoError(t, s.replies[1].err)
		s.handle.Close()
		before()
		require.Eventually(t, func() bool { return len(c.get((leader+1)%3, key, "").Kvs) == 0 }, 10*ttl, ttl/200)
		lived := time.Since(sent)
		require.Greater(t, lived, ttl)
		return lived
	}
	t.Run("quiet", func(t *testing.T) {
		for _, at := range []place{
			{"leader", leader, stoapb.Level_STRICT}, {"follower", leader + 1, stoapb.Level_STRICT},
			{"causal read", leader + 1, stoapb.Level_CAUSAL}, {"fast read", leader + 1, stoapb.Level_FAST},
		} {
			t.Run(at.name, func(t *testing.T) {
				t.Parallel()
				term := c.nodes[0].RaftTerm()
				lived := outlives(t, at, func() {})
				if c.nodes[0].RaftTerm() == term { // another leader gives sessions all their time anew
					require.Less(t, lived, 8*time.Second)
				}
			})
		}
	})
	t.Run("change of leader", func(t *testing.T) {
		outlives(t, place{"change", leader + 1, stoapb.Level_CAUSAL}, func() { c.stop(leader) })
	})
}

func askEphemeral(key string, lease int64) func(*session.Item) {
	r := &pb.PutRequest{Key: []byte(key), Lease: lease}
	return func(it *session.Item) {
		it.Kind, it.Key, it.Body, it.Message = stoapb.Kind_PUT, r.Key, mustMarshal(r), r
	}
}

// Every server of the cluster counts the sessions that are open, whichever they are on.
func TestOpenSessionsAreCounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	counted := func(want int) {
		for _, n := range c.nodes {
			require.Eventually(t, func() bool { return n.State().Sessions == want }, 30*time.Second, time.Millisecond)
		}
	}
	counted(0)
	for on := range c.nodes {
		s := newSessionClient(c, on)
		s.open(0)
		defer s.handle.Close()
	}
	counted(3)
}
