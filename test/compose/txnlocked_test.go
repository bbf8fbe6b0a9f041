package compose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/extensions"
)

// With the extension "locked", clients that know nothing of transactions over clusters can't write
// a key while it is locked, and transactions go on as without.
func TestLockedExtension(t *testing.T) {
	all := startEach(t, "stoa", "etcd")
	ctx := soon(t)
	source, err := extensions.SourceAt("locked", prefix(0))
	require.NoError(t, err)
	raw := dial(t, all[0].voters...)
	_, err = raw.Put(ctx, "/em/locked", source)
	require.NoError(t, err)
	bank, err := client.New(client.Config{Endpoints: urls(all[0].voters), ClientID: "bank"})
	require.NoError(t, err)
	defer bank.Close()
	_, err = bank.Put(ctx, "/em/locked/ack", "")
	require.NoError(t, err)
	stranger, err := client.New(client.Config{Endpoints: urls(all[0].voters), ClientID: "stranger"})
	require.NoError(t, err)
	defer stranger.Close()

	cfg := all.bank()
	cfg.ClientID = "bank"
	c, err := compose.New(cfg)
	require.NoError(t, err)
	defer c.Close()
	both := func(value string) {
		_, err := c.Txn(ctx).Then(clientv3.OpPut("/c1/a", value), clientv3.OpPut("/c0/a", value)).Commit()
		require.NoError(t, err)
	}
	both("1")
	_, err = c.Put(ctx, "/c0/a", "2")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return all.left(t) == nil }, time.Minute, 10*time.Millisecond)

	_, err = raw.Put(ctx, "/stoa/txn/lock//c0/a", `{"txn":"other","home":1}`)
	require.NoError(t, err)
	_, err = raw.Put(ctx, "/c0/a", "3")
	require.ErrorContains(t, err, "is locked by a transaction over several clusters")
	_, err = raw.Delete(ctx, "/c0/", clientv3.WithPrefix())
	require.ErrorContains(t, err, "is locked by a transaction over several clusters")
	_, err = raw.Put(ctx, "/c0/b", "3")
	require.NoError(t, err)
	_, err = stranger.Put(ctx, "/c0/b", "4")
	require.ErrorContains(t, err, "has not acknowledged")
	_, err = raw.Delete(ctx, "/stoa/txn/lock//c0/a")
	require.NoError(t, err)
	_, err = raw.Put(ctx, "/c0/a", "3")
	require.NoError(t, err)
	both("4")
}
