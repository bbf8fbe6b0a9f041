package compose

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A transaction of many keys, which a client of a sidecar can send, is the cluster's to refuse: it takes no time that grows with
// the square of their number.
func TestTransactionOfManyKeys(t *testing.T) {
	r, err := newRouting([]string{"a", "b"}, []Route{{Prefix: "/a/", Cluster: "a", Transactions: true}, {Prefix: "/b/", Cluster: "b", Transactions: true}}, "")
	require.NoError(t, err)
	m := new(pb.TxnRequest)
	const keys = 30_000
	for i := range 2 * keys {
		m.Success = append(m.Success, opOf(&pb.PutRequest{Key: fmt.Appendf(nil, "/a/%d", i%keys)}))
	}
	began := time.Now()
	x, err := r.split(m)
	require.NoError(t, err)
	require.Nil(t, x)
	require.Len(t, newGuard(m).locks, keys)
	m.Success = append(m.Success, opOf(&pb.PutRequest{Key: []byte("/b/k")}))
	_, err = r.split(m)
	require.ErrorIs(t, err, ErrTransactions)
	require.Less(t, time.Since(began), 10*time.Second)
}
