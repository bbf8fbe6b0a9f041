package sidecar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// TestWatchOfALargeKey: no member takes it, and watches of other clients go on.
func TestWatchOfALargeKey(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	s := beside(t, c, "sidecar")
	one, other := dial(t, s.ClientURL, clientv3.Config{}), dial(t, s.ClientURL, clientv3.Config{MaxCallSendMsgSize: 8 << 20})
	ctx := soon(t)
	w := one.Watch(ctx, "k", clientv3.WithCreatedNotify())
	require.True(t, (<-w).Created)
	large := <-other.Watch(ctx, strings.Repeat("x", 3<<20), clientv3.WithCreatedNotify())
	require.Error(t, large.Err())
	t.Log(large.Err())
	_, err := one.Put(ctx, "k", "v")
	require.NoError(t, err)
	require.Len(t, (<-w).Events, 1)
	require.Zero(t, number(s, "stoa_sidecar_watch_stream_failures_total"))
}
