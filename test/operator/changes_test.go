package operator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// What etcd tests inside of one process (tests/integration: member_test.go, cluster_test.go,
// clientv3/cluster_test.go, clientv3/kv_test.go, clientv3/maintenance_test.go), with real servers.
// STOA_COMPAT_SERVER=etcd runs it on etcd.

// bold servers don't ask whether the others have been connected for five seconds.
var bold = []string{"--strict-reconfig-check=false", "--max-learners=2"}

// nowhere is a peer URL at which nobody listens.
func nowhere(port int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d", port)} }

func says(t *testing.T, want, err error) {
	t.Helper()
	require.EqualError(t, rpctypes.Error(err), want.Error())
}

func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: bold})
	cli, taken := client(t, c.Servers[follower(t, c)]), []string{c.Servers[2].PeerURL}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id := memberID(t, c.Servers[0], c.Servers[1].Name)

	_, err := cli.MemberAdd(ctx, taken)
	says(t, rpctypes.ErrPeerURLExist, err)
	_, err = cli.MemberUpdate(ctx, id, taken)
	says(t, rpctypes.ErrPeerURLExist, err)
	_, err = cli.MemberUpdate(ctx, 7, nowhere(1))
	says(t, rpctypes.ErrMemberNotFound, err)
	_, err = cli.MemberRemove(ctx, 7)
	says(t, rpctypes.ErrMemberNotFound, err)
	_, err = cli.MemberPromote(ctx, 7)
	says(t, rpctypes.ErrMemberNotFound, err)
	_, err = cli.MemberPromote(ctx, id)
	says(t, rpctypes.ErrMemberNotLearner, err)
	for _, url := range []string{"://127.0.0.1:1", "mailto://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/path", "127.0.0.1:1", "localhost:1"} {
		// Not by clientv3, which refuses these itself.
		_, err = pb.NewClusterClient(cli.ActiveConnection()).MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{url}})
		says(t, rpctypes.ErrMemberBadURLs, err)
	}
	require.Len(t, members(t, c.Servers[0]), 3)
}

// Learners that haven't started: they can't be promoted, nor lead, there are as many as
// --max-learners says, and they stay learners when their URLs change.
func TestLearnersThatHaveNotStarted(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: bold})
	cli := client(t, c.Servers[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	added, err := cli.MemberAddAsLearner(ctx, nowhere(1))
	require.NoError(t, err)
	require.True(t, added.Member.IsLearner)
	id := added.Member.ID
	_, err = cli.MemberPromote(ctx, id)
	says(t, rpctypes.ErrMemberLearnerNotReady, err)
	_, err = cli.MemberUpdate(ctx, id, nowhere(2))
	require.NoError(t, err)
	for _, m := range members(t, c.Servers[1]) {
		if m.GetID() == id {
			require.True(t, m.GetIsLearner())
			require.Equal(t, nowhere(2), m.GetPeerURLs())
		}
	}
	for _, s := range c.Servers {
		if st, err := cli.Status(ctx, s.ClientURL); err == nil && st.Leader == st.Header.MemberId {
			_, err = client(t, s).MoveLeader(ctx, id)
			says(t, rpctypes.ErrBadLeaderTransferee, err)
		}
	}
	_, err = cli.MemberAddAsLearner(ctx, nowhere(3))
	require.NoError(t, err)
	_, err = cli.MemberAddAsLearner(ctx, nowhere(4))
	says(t, rpctypes.ErrTooManyLearners, err)
}

func TestALearnerThatRuns(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2, Args: bold})
	put(t, c.Servers[0], "first", 20)
	s, err := c.Joining("s2", process.Place{Host: "127.0.0.1"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cli := client(t, c.Servers[0])
	added, err := cli.MemberAddAsLearner(ctx, []string{s.PeerURL})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	learner := client(t, s)
	require.Eventually(t, func() bool {
		resp, err := learner.Get(ctx, "/first/", clientv3.WithPrefix(), clientv3.WithSerializable())
		return err == nil && resp.Count == 20
	}, 20*time.Second, 50*time.Millisecond)
	_, err = learner.Get(ctx, "/first/")
	says(t, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), err)
	_, err = learner.Put(ctx, "/first/", "v")
	says(t, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), err)
	_, err = learner.Txn(ctx).Then(clientv3.OpGet("/first/")).Commit()
	says(t, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), err)
	st, err := learner.Status(ctx, s.ClientURL)
	require.NoError(t, err)
	require.True(t, st.IsLearner)
	require.Eventually(t, func() bool {
		_, err := cli.MemberPromote(ctx, added.Member.ID)
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	put(t, s, "second", 5)
}

// With one of three members down, another one is neither added, nor is one of those removed
// that run; but the one that is down is.
func TestAnUnhealthyClusterIsNotChanged(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	one, two, down := c.Servers[0], c.Servers[1], c.Servers[2]
	id, gone := memberID(t, one, two.Name), memberID(t, one, down.Name)
	time.Sleep(6 * time.Second) // etcd's HealthInterval, and time to connect
	require.NoError(t, down.Kill())
	put(t, one, "first", 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cli := client(t, one)
	_, err := cli.MemberAdd(ctx, nowhere(1))
	says(t, rpctypes.ErrUnhealthy, err)
	_, err = cli.MemberRemove(ctx, id)
	says(t, rpctypes.ErrUnhealthy, err)
	_, err = cli.MemberRemove(ctx, gone)
	require.NoError(t, err)
	require.Len(t, members(t, two), 2)
}

// Several clients remove one member at the same time.
func TestAMemberIsRemovedBySeveral(t *testing.T) {
	requireStoa(t) // one of etcd's answers may never come
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: bold})
	gone := c.Servers[2]
	id := memberID(t, c.Servers[0], gone.Name)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, 4)
	var work sync.WaitGroup
	for i := range errs {
		cli := client(t, c.Servers[i%2])
		work.Go(func() { _, errs[i] = cli.MemberRemove(ctx, id) })
	}
	work.Wait()
	removed := 0
	for _, err := range errs {
		if err == nil {
			removed++
			continue
		}
		says(t, rpctypes.ErrMemberNotFound, err)
	}
	require.NotZero(t, removed)
	require.Len(t, members(t, c.Servers[0]), 2)
	_, err := gone.Wait(20 * time.Second)
	require.NoError(t, err)
	put(t, c.Servers[0], "first", 5)
}

// Members are added when all that the cluster began with have been replaced.
func TestMembersAreAddedAfterAFullRotation(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: bold})
	put(t, c.Servers[0], "first", 20)
	for i := range 4 {
		next := added(t, c, c.Servers[2], fmt.Sprintf("n%d", i))
		require.NoError(t, next.Start())
		ready(t, next)
		if i == 3 {
			break
		}
		old := c.Servers[0]
		id := memberID(t, next, old.Name)
		change(t, next, func(ctx context.Context, cli *clientv3.Client) error {
			_, err := cli.MemberRemove(ctx, id)
			return err
		})
		_, err := old.Wait(30 * time.Second)
		require.NoError(t, err)
		c.Servers = c.Servers[1:]
	}
	require.Len(t, members(t, c.Servers[0]), 4)
	for _, s := range c.Servers {
		requireKeys(t, s, "first", 20)
	}
}
