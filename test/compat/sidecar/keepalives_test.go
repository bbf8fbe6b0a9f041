package sidecar

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// TestKeepAlivesShare: many clients keep leases alive through a sidecar, several of them the same
// one; a member fails meanwhile. A lease ends when the last client that kept it alive has gone.
func TestKeepAlivesShare(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	s := beside(t, c, "sidecar")
	direct := dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	const ttl = 5 // s: more than a loaded machine stands still for
	shared, err := direct.Grant(ctx, ttl)
	require.NoError(t, err)
	keep := func(ctx context.Context, id clientv3.LeaseID) <-chan *clientv3.LeaseKeepAliveResponse {
		answers, err := dial(t, s.ClientURL, clientv3.Config{}).KeepAlive(ctx, id)
		require.NoError(t, err)
		r := <-answers
		require.NotNil(t, r)
		require.Equal(t, id, r.ID)
		require.EqualValues(t, ttl, r.TTL)
		return answers
	}
	all, stop := context.WithCancel(ctx)
	defer stop()
	for range 10 {
		go drain(keep(all, shared.ID))
	}
	one, leave := context.WithCancel(ctx)
	defer leave()
	own, err := direct.Grant(ctx, ttl)
	require.NoError(t, err)
	go drain(keep(one, own.ID))
	require.Equal(t, 11, number(s, "stoa_sidecar_keepalive_streams"))

	time.Sleep((ttl + 2) * time.Second)
	require.GreaterOrEqual(t, remaining(t, direct, shared.ID), int64(0))
	require.GreaterOrEqual(t, remaining(t, direct, own.ID), int64(0))
	leave()
	require.Eventually(t, func() bool { return remaining(t, direct, own.ID) < 0 }, limit, 50*time.Millisecond, "a lease is kept alive for nobody")
	require.GreaterOrEqual(t, remaining(t, direct, shared.ID), int64(0))

	require.NoError(t, c.Servers[1].Kill())
	time.Sleep((ttl + 2) * time.Second)
	require.GreaterOrEqual(t, remaining(t, direct, shared.ID), int64(0))
	stop()
	require.Eventually(t, func() bool { return remaining(t, direct, shared.ID) < 0 }, limit, 50*time.Millisecond)

	_, err = dial(t, s.ClientURL, clientv3.Config{}).KeepAliveOnce(ctx, shared.ID)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
}

// TestKeepAlivesLeaveASilentMember: while a member is stopped, and its connections are up, leases are kept
// alive by the others.
func TestKeepAlivesLeaveASilentMember(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	s := beside(t, c, "sidecar")
	ctx := soon(t)
	var follower *process.Server
	var direct *clientv3.Client
	for _, m := range c.Servers {
		cli := dial(t, m.ClientURL, clientv3.Config{})
		st, err := cli.Status(ctx, m.ClientURL)
		require.NoError(t, err)
		if st.Leader == st.Header.MemberId {
			direct = cli
		} else {
			follower = m
		}
	}
	var leases []clientv3.LeaseID
	for range 24 {
		lease, err := direct.Grant(ctx, 8)
		require.NoError(t, err)
		answers, err := dial(t, s.ClientURL, clientv3.Config{}).KeepAlive(ctx, lease.ID)
		require.NoError(t, err)
		require.NotNil(t, <-answers)
		go drain(answers)
		leases = append(leases, lease.ID)
	}
	require.NoError(t, follower.Pause())
	time.Sleep(13 * time.Second)
	for _, id := range leases {
		require.Positive(t, remaining(t, direct, id))
	}
	require.NoError(t, follower.Resume())
}

// TestARenewalIsShared: those that ask while a renewal is waited for share the next one.
func TestARenewalIsShared(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Partitions: 2})
	s := beside(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	lease, err := cli.Grant(ctx, 60)
	require.NoError(t, err)
	require.NoError(t, c.Servers[0].Pause())
	answered := make(chan error, 50)
	for range cap(answered) {
		go func() {
			_, err := cli.KeepAliveOnce(ctx, lease.ID)
			answered <- err
		}()
	}
	require.Eventually(t, func() bool { return number(s, "stoa_sidecar_keepalive_streams") == cap(answered) }, limit, 10*time.Millisecond)
	time.Sleep(100 * time.Millisecond) // for their requests to come
	require.NoError(t, c.Servers[0].Resume())
	for range cap(answered) {
		require.NoError(t, <-answered)
	}
	require.Equal(t, cap(answered), number(s, "stoa_sidecar_keepalive_responses_total"))
	require.Less(t, number(s, "stoa_sidecar_lease_renewals_total"), cap(answered)/2)
}

func drain(answers <-chan *clientv3.LeaseKeepAliveResponse) {
	for range answers {
	}
}

// remaining is the whole seconds that a lease has still to live, -1 if it has ended.
func remaining(t *testing.T, cli *clientv3.Client, id clientv3.LeaseID) int64 {
	t.Helper()
	r, err := cli.TimeToLive(soon(t), id)
	require.NoError(t, err)
	return r.TTL
}
