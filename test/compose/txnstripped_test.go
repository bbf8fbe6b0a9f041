package compose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// A client dies behind its commit, and another one deletes all keys of a route that strips its prefix, in the home of the
// transaction: that takes effect in both clusters all the same.
func TestTransactionsWhoseRouteIsDeleted(t *testing.T) {
	for _, servers := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		t.Run(servers[1], func(t *testing.T) {
			all := startEach(t, servers...)
			cfg := all.bank()
			cfg.Routes[1].Strip = true
			c, err := compose.New(cfg)
			require.NoError(t, err)
			defer c.Close()
			away, home := dial(t, all[0].voters...), dial(t, all[1].voters...)
			id := func(c *clientv3.Client) uint64 {
				r, err := c.Get(t.Context(), "x")
				require.NoError(t, err)
				return r.Header.ClusterId
			}
			// a = 90 and b = 110 is committed, and not yet carried out in the other cluster (internal/commit/DESIGN.md).
			lock := fmt.Sprintf(`{"txn":"1-1","home":%d}`, id(home))
			record := fmt.Sprintf(`{"phase":"committed","lease":1,"parts":[{"cluster":%d,"locked":["L2MwL2E="],"writes":[{"key":"L2MwL2E=","value":"OTA="}]}]}`, id(away))
			_, err = away.Txn(t.Context()).Then(clientv3.OpPut("/c0/a", "100"), clientv3.OpPut("/stoa/txn/lock//c0/a", lock)).Commit()
			require.NoError(t, err)
			_, err = home.Txn(t.Context()).Then(clientv3.OpPut("b", "110"), clientv3.OpPut("/stoa/txn/record/1-1", record)).Commit()
			require.NoError(t, err)

			got, err := c.Get(t.Context(), "/c1/", clientv3.WithPrefix())
			require.NoError(t, err)
			require.Len(t, got.Kvs, 1)
			require.Equal(t, "/c1/b", string(got.Kvs[0].Key))
			gone, err := c.Delete(t.Context(), "/c1/", clientv3.WithPrefix())
			require.NoError(t, err)
			require.EqualValues(t, 1, gone.Deleted)
			got, err = c.Get(t.Context(), "/c0/a")
			require.NoError(t, err)
			require.Equal(t, "90", string(got.Kvs[0].Value))
		})
	}
}
