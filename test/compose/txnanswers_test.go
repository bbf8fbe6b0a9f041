package compose

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// What transactions over a stoa and an etcd cluster answer, what is refused, and how requests of
// one cluster deal with locks that a dead client has left.
func TestTransactionAnswers(t *testing.T) {
	all := startEach(t, "stoa", "etcd")
	c, err := compose.New(all.bank())
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	both := func() *clientv3.TxnResponse {
		a, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("/c0/a"), "=", 0)).
			Then(clientv3.OpPut("/c0/a", "1"), clientv3.OpPut("/c1/a", "1")).
			Else(clientv3.OpGet("/c0/a"), clientv3.OpGet("/c1/a")).Commit()
		require.NoError(t, err)
		return a
	}
	require.True(t, both().Succeeded)
	a := both()
	require.False(t, a.Succeeded)
	require.Equal(t, "1", string(a.Responses[1].GetResponseRange().Kvs[0].Value))
	for _, k := range []string{"/c0/a", "/c1/a"} { // the client's own writes
		g, err := c.Get(ctx, k)
		require.NoError(t, err)
		require.Equal(t, "1", string(g.Kvs[0].Value))
	}
	_, err = c.PutAsync("/c0/a", "2").Wait(ctx)
	require.ErrorIs(t, err, compose.ErrTransactions)
	lease, err := c.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = c.Put(ctx, "/c0/a", "2", clientv3.WithLease(lease.ID))
	require.ErrorIs(t, err, compose.ErrTransactions)

	// A lock without a record: its client has died before it has committed.
	raw := dial(t, all[1].voters...)
	_, err = raw.Put(ctx, "/stoa/txn/lock//c1/a", `{"txn":"dead-1","home":`+clusterID(t, ctx, raw)+`}`)
	require.NoError(t, err)
	_, err = c.Put(ctx, "/c1/a", "2")
	require.NoError(t, err)
	g, err := c.Get(ctx, "/c1/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, "2", string(g.Kvs[0].Value))

	// One that was committed, in the other cluster: whoever reads completes it.
	home := dial(t, all[0].voters...)
	_, err = home.Put(ctx, "/stoa/txn/record/dead-2", `{"phase":"committed","lease":7,"parts":[{"cluster":`+clusterID(t, ctx, raw)+
		`,"locked":["L2MxL2E="],"writes":[{"key":"L2MxL2E=","value":"Mw=="}]}]}`)
	require.NoError(t, err)
	_, err = raw.Put(ctx, "/stoa/txn/lock//c1/a", `{"txn":"dead-2","home":`+clusterID(t, ctx, home)+`}`)
	require.NoError(t, err)
	g, err = c.Synced().Get(ctx, "/c1/a")
	require.NoError(t, err)
	require.Equal(t, "3", string(g.Kvs[0].Value))
	require.Eventually(t, func() bool { return all.left(t) == nil }, time.Minute, 50*time.Millisecond)
}

// clusterID is the ID of a cluster as records and locks have it.
func clusterID(t *testing.T, ctx context.Context, c *clientv3.Client) string {
	a, err := c.Get(ctx, "x")
	require.NoError(t, err)
	return strconv.FormatUint(a.Header.ClusterId, 10)
}
