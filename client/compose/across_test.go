package compose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// lockable are routes of three clusters, one of them without transactions.
func lockable(t *testing.T) *routing {
	r, err := newRouting([]string{"asia", "eu", "us"}, []Route{
		{Prefix: "/eu/", Cluster: "eu", Transactions: true},
		{Prefix: "/us/", Cluster: "us", Transactions: true, Strip: true},
		{Prefix: "/asia/", Cluster: "asia"},
	}, "")
	require.NoError(t, err)
	return r
}

func txnMessage(t *testing.T, cs []clientv3.Cmp, then, otherwise []clientv3.Op) *pb.TxnRequest {
	m, err := engine.Message(clientv3.OpTxn(cs, then, otherwise))
	require.NoError(t, err)
	return m.(*pb.TxnRequest)
}

// The first cluster that is written is home; keys have their names in the clusters.
func TestSplit(t *testing.T) {
	x, err := lockable(t).split(txnMessage(t,
		[]clientv3.Cmp{clientv3.Compare(clientv3.Version("/eu/a"), "=", 0)},
		[]clientv3.Op{clientv3.OpGet("/eu/b"), clientv3.OpPut("/us/c", "1"), clientv3.OpDelete("/eu/d")}, nil))
	require.NoError(t, err)
	require.Len(t, x.parts, 2)
	require.Equal(t, 2, x.parts[0].cluster)
	require.Equal(t, "c", x.parts[0].keys[0].keyThere("/us/c"))
	require.Len(t, x.parts[1].keys, 3)

	for _, then := range [][]clientv3.Op{
		{clientv3.OpPut("/eu/a", "")},
		{clientv3.OpPut("/eu/a", ""), clientv3.OpPut("/asia/a", "")},
		{clientv3.OpPut("/eu/a", ""), clientv3.OpPut("/nowhere/a", "")},
	} {
		x, err := lockable(t).split(txnMessage(t, nil, then, nil))
		require.NoError(t, err)
		require.Nil(t, x, "one cluster, or not all keys with transactions")
	}
}

func TestSplitRefuses(t *testing.T) {
	many := []clientv3.Op{clientv3.OpPut("/us/a", "")}
	for i := range commit.MaxKeys + 1 {
		many = append(many, clientv3.OpPut(fmt.Sprintf("/eu/%d", i), ""))
	}
	put := clientv3.OpPut("/us/a", "")
	for why, then := range map[string][]clientv3.Op{
		"a range":                            {put, clientv3.OpGet("/eu/", clientv3.WithPrefix())},
		"a read at a revision":               {put, clientv3.OpGet("/eu/a", clientv3.WithRev(1))},
		"a read that chooses by revisions":   {put, clientv3.OpGet("/eu/a", clientv3.WithMinModRev(1))},
		"a read behind a write":              {put, clientv3.OpPut("/eu/a", ""), clientv3.OpGet("/eu/a")},
		"a lease":                            {put, clientv3.OpPut("/eu/a", "", clientv3.WithLease(7))},
		"ignores the value":                  {put, clientv3.OpPut("/eu/a", "", clientv3.WithIgnoreValue())},
		"a deletion of a range":              {put, clientv3.OpDelete("/eu/a", clientv3.WithPrefix())},
		"a transaction within a transaction": {put, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/eu/a", "")}, nil)},
		"61 keys in cluster eu":              many,
	} {
		_, err := lockable(t).split(txnMessage(t, nil, then, nil))
		require.ErrorIs(t, err, ErrTransactions, why)
		require.ErrorContains(t, err, why)
	}
	_, err := lockable(t).split(txnMessage(t, nil, []clientv3.Op{put, clientv3.OpPut("/eu/a", ""), clientv3.OpPut("/eu/a", "")}, nil))
	require.ErrorIs(t, err, rpctypes.ErrDuplicateKey)
}

// A transaction is evaluated on the values under its locks as a cluster would do it.
func TestDecide(t *testing.T) {
	here := &commit.KV{Key: "a", Value: []byte("5"), Create: 3, Mod: 7, Version: 2}
	for _, c := range []struct {
		cmp  clientv3.Cmp
		want bool
	}{
		{clientv3.Compare(clientv3.Value("/eu/a"), "=", "5"), true},
		{clientv3.Compare(clientv3.Value("/eu/a"), ">", "5"), false},
		{clientv3.Compare(clientv3.Value("/eu/a"), "<", "6"), true},
		{clientv3.Compare(clientv3.Value("/us/b"), "!=", "5"), false}, // there is none
		{clientv3.Compare(clientv3.Version("/eu/a"), "=", 2), true},
		{clientv3.Compare(clientv3.CreateRevision("/eu/a"), "=", 3), true},
		{clientv3.Compare(clientv3.CreateRevision("/us/b"), "=", 0), true},
		{clientv3.Compare(clientv3.ModRevision("/eu/a"), "!=", 7), false},
		{clientv3.Compare(clientv3.ModRevision("/eu/a"), "<", 8), true},
	} {
		x, err := lockable(t).split(txnMessage(t, []clientv3.Cmp{c.cmp},
			[]clientv3.Op{clientv3.OpPut("/eu/a", "6", clientv3.WithPrevKV()), clientv3.OpDelete("/us/b")},
			[]clientv3.Op{clientv3.OpGet("/eu/a"), clientv3.OpGet("/us/b")}))
		require.NoError(t, err)
		x.take(0, []*commit.KV{here})
		x.take(1, []*commit.KV{nil})
		a, writes := x.decide()
		require.Equal(t, c.want, a.Succeeded, "%v", c.cmp)
		if !c.want {
			require.Nil(t, writes)
			require.Equal(t, "/eu/a", string(a.Responses[0].GetResponseRange().Kvs[0].Key))
			require.Empty(t, a.Responses[1].GetResponseRange().Kvs)
			continue
		}
		require.Equal(t, [][]commit.Write{{{Key: []byte("/eu/a"), Value: []byte("6")}}, nil}, writes)
		require.Equal(t, "5", string(a.Responses[0].GetResponsePut().PrevKv.Value))
		require.Zero(t, a.Responses[1].GetResponseDeleteRange().Deleted)
	}
}

// A request of one cluster has the locks of all its keys and ranges beside it.
func TestGuard(t *testing.T) {
	put, err := engine.Message(clientv3.OpPut("/eu/a", "1"))
	require.NoError(t, err)
	m := newGuard(put).message()
	require.Equal(t, "/stoa/txn/lock//eu/a", string(m.Compare[0].Key))
	require.Equal(t, int64(0), m.Compare[0].GetCreateRevision())
	require.NotNil(t, m.Success[0].GetRequestPut())
	require.Equal(t, update, kindOf(m))

	all, err := engine.Message(clientv3.OpGet("/eu/", clientv3.WithPrefix()))
	require.NoError(t, err)
	m = newGuard(all).message()
	require.Equal(t, "/stoa/txn/lock//eu0", string(m.Success[1].GetRequestRange().RangeEnd))
	require.Equal(t, read, kindOf(m))

	end, err := engine.Message(clientv3.OpGet("a", clientv3.WithFromKey()))
	require.NoError(t, err)
	require.Equal(t, "/stoa/txn/lock0", string(newGuard(end).message().Success[1].GetRequestRange().RangeEnd))
}
