package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// join adds a member through server i and starts it.
func (c *cluster) join(i int, learner bool) int {
	c.addrs = append(c.addrs, c.address())
	at := len(c.nodes)
	var added *pb.Member
	var list []*pb.Member
	c.change(func(ctx context.Context) (err error) {
		added, list, err = c.nodes[i].MemberAdd(ctx, []string{"http://" + c.addrs[at]}, learner)
		return err
	})
	cfg := c.configs[0]
	cfg.ID, cfg.Members, cfg.Joins, cfg.DataDir = added.ID, list, true, c.t.TempDir()
	cfg.Logger = zaptest.NewLogger(c.t).Named(fmt.Sprintf("n%d", at))
	c.configs = append(c.configs, cfg)
	c.nodes, c.servers = append(c.nodes, nil), append(c.servers, nil)
	c.start(at)
	c.ready()
	return at
}

// change repeats a change of members that a leader change has interrupted or that servers
// refuse since they have been connected for a short time only.
func (c *cluster) change(ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		require.True(c.t, fault.Passing(err) || err == fault.Unhealthy || err == fault.NotEnoughStarted || err == fault.LearnerNotReady, "%v", err)
		time.Sleep(50 * time.Millisecond)
	}
}

// A cluster grows from one server to three and shrinks again, always without the server
// that it began with and others that lead; what was written is there throughout.
func TestAClusterGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			c := newCluster(t, 1, partitions, func(cfg *Config) { cfg.MaxLearners = 1 })
			c.ready()
			keys := 0
			put := func(i int) {
				for range 20 {
					c.put(i, fmt.Sprintf("k%03d", keys), "v")
					keys++
				}
			}
			put(0)
			first := c.join(0, false)
			put(first)
			second := c.join(first, true)
			_, err := c.nodes[second].Put(context.Background(), &pb.PutRequest{Key: []byte("k000"), Value: []byte("v")})
			require.NoError(t, err, "the node forwards; it is the services in front of it that refuse")
			c.change(func(ctx context.Context) error {
				list, err := c.nodes[0].MemberPromote(ctx, c.configs[second].ID)
				if err == nil {
					require.Len(t, list, 3)
				}
				return err
			})
			require.EqualValues(t, 1, c.nodes[0].Counts().Promoted)
			put(second)
			for i := range c.nodes {
				require.Len(t, c.get(i, "k", "l").Kvs, keys, "server %d", i)
			}
			for _, gone := range []int{0, first} { // the leader, mostly
				c.change(func(ctx context.Context) error {
					_, err := c.nodes[second].MemberRemove(ctx, c.configs[gone].ID)
					if err == fault.MemberNotFound {
						return nil // an earlier try has had its effect
					}
					return err
				})
				c.stop(gone)
				put(second)
			}
			require.Len(t, c.get(second, "k", "l").Kvs, keys)
			require.Equal(t, []uint64{1, c.configs[first].ID}, c.nodes[second].core.Load().machine.Membership().Removed)

			c.stop(second)
			c.start(second)
			c.ready()
			require.Len(t, c.get(second, "k", "l").Kvs, keys, "after a restart")
			require.Len(t, c.nodes[second].core.Load().machine.Members(), 1)
			require.Empty(t, c.nodes[second].core.Load().replica.Peers())
		})
	}
}

// Members change while the leader does, over and over. A server that can't know whether a
// change was decided finds out, and its client hears of no error.
func TestMembersChangeWhileLeadersDo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, func(cfg *Config) {
		cfg.MaxLearners, cfg.Election = 1, 500*time.Millisecond // for as long nothing is decided if leadership doesn't arrive
	})
	c.ready()
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, n := range c.nodes {
				began := time.Now()
				moving, cancel := context.WithTimeout(ctx, time.Second)
				_ = n.MoveLeader(moving, uint64(i%3+1)) // only the leader does
				cancel()
				time.Sleep(max(2*time.Millisecond, time.Since(began))) // or there would be little but changes of leader
			}
		}
	})
	defer churn.Wait()
	defer stop()
	for i := range 30 {
		n := c.nodes[i%3]
		added, list, err := n.MemberAdd(ctx, []string{"http://127.0.0.1:1"}, true)
		require.NoError(t, err)
		require.Len(t, list, 4)
		list, err = n.MemberUpdate(ctx, added.ID, []string{fmt.Sprintf("http://127.0.0.1:%d", i+2)})
		require.NoError(t, err)
		require.Len(t, list, 4)
		list, err = n.MemberRemove(ctx, added.ID)
		require.NoError(t, err)
		require.Len(t, list, 3)
	}
}

// A leader that is asked for its own removal answers before it ends, also if it hears from the others alone that they have
// let it go.
func TestALeaderRemovesItself(t *testing.T) {
	for round := range 6 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			ends := make(chan time.Time, 1)
			c := newCluster(t, 3, 1+3*(round%2), func(cfg *Config) { cfg.Removed = func() { ends <- time.Now() } })
			c.ready()
			lead := c.leader()
			list, err := c.nodes[lead].MemberRemove(t.Context(), c.configs[lead].ID)
			answered := time.Now()
			require.NoError(t, err)
			require.Len(t, list, 2)
			require.Greater(t, (<-ends).Sub(answered), leaveAfter/2)
		})
	}
}

// A change of members is made again, as its answer was lost, and refused then, since it has taken effect. The list in the answer has it, though the
// member that was asked is behind.
func TestAChangeOfMembersThatIsRepeatedByAMemberThatIsBehind(t *testing.T) {
	s := newSnapshots(t, 2, func(cfg *Config) { cfg.MaxLearners = 1 })
	n, leader := s.nodes[s.follower], uint64(s.leader+1)
	added, _, err := n.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}, true)
	require.NoError(t, err)
	s.disks[s.follower].Lock() // it executes nothing
	behind := sync.OnceFunc(s.disks[s.follower].Unlock)
	t.Cleanup(behind)
	release := s.hold()
	lists := make(chan int, 1)
	go func() {
		list, err := n.MemberRemove(t.Context(), added.ID)
		assert.NoError(t, err)
		lists <- len(list)
	}()
	time.Sleep(200 * time.Millisecond)
	n.core.Load().replica.Unreachable(leader) // the answer may be lost
	time.Sleep(200 * time.Millisecond)
	release()
	time.Sleep(200 * time.Millisecond)
	behind()
	require.Equal(t, 3, <-lists)
}

// A learner knows that it is one after a restart too, and says so.
func TestALearnerRestarts(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.MaxLearners = 1 })
	c.ready()
	at := c.join(0, true)
	isLearner := func(i int) bool {
		s, err := c.nodes[i].Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.nodes[i].IsLearner(), s.IsLearner)
		return s.IsLearner
	}
	require.Eventually(t, func() bool { return isLearner(at) }, time.Minute, 10*time.Millisecond)
	c.stop(at)
	c.start(at)
	require.True(t, isLearner(at), "from its first moment")
	require.False(t, isLearner(0))
}

// The only server of a cluster is told that there will be a second one while its clients
// write to several partitions at once. It answers, though nothing else can be committed
// before the second one starts.
func TestAMemberIsAddedBeforeItStarts(t *testing.T) {
	c := newCluster(t, 1, 4)
	c.ready()
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				txn := &pb.TxnRequest{}
				for k := range 4 {
					put := &pb.PutRequest{Key: fmt.Appendf(nil, "/%d/%d", k, i), Value: []byte("v")}
					txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
				}
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				_, _ = c.nodes[0].Txn(ctx, txn)
				cancel()
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // rendezvous are under way
	_, list, err := c.nodes[0].MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}, false)
	close(stop)
	load.Wait()
	require.NoError(t, err)
	require.Len(t, list, 2)
}

// A member that is added while the number of partitions changes is in the answer, though it was asked for in the generation before.
func TestAMemberIsAddedWhileTheNumberOfPartitionsChanges(t *testing.T) {
	c := newCluster(t, 1, 2, func(cfg *Config) { cfg.MaxLearners = 1 })
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	before := n.core.Load()
	n.rebuild.Lock() // the next generation waits
	var asked sync.WaitGroup
	asked.Go(func() { assert.NoError(t, n.Resize(t.Context(), 4)) })
	require.Eventually(t, func() bool { return !before.replica.Leading() }, time.Minute, time.Millisecond)
	asked.Go(func() {
		m, list, err := n.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}, true)
		assert.NoError(t, err)
		assert.NotNil(t, m)
		assert.Contains(t, list, m)
	})
	time.Sleep(20 * time.Millisecond) // it waits for a leader
	n.rebuild.Unlock()
	asked.Wait()
	require.NotSame(t, before, n.core.Load())
}
