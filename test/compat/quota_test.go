package compat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/test/process"
)

func (g *guarded) setQuota(q *stoapb.Quota) {
	_, err := stoapb.NewQuotasClient(g.root.ActiveConnection()).Set(g.ctx, &stoapb.SetQuotaRequest{Quota: q})
	require.NoError(g.t, err)
}

// used is what a role has used, by the quota and by its keys.
func (g *guarded) used(role, prefix string) (counted, found auth.Limits) {
	all, err := g.root.Get(g.ctx, prefix, clientv3.WithPrefix())
	require.NoError(g.t, err)
	r, err := stoapb.NewQuotasClient(g.root.ActiveConnection()).List(g.ctx, &stoapb.ListQuotasRequest{})
	require.NoError(g.t, err)
	for _, u := range r.Quotas {
		if u.Quota.Role == role {
			counted = auth.Limits{Bytes: u.Bytes, Keys: u.Keys}
		}
	}
	for _, kv := range all.Kvs {
		found.Bytes += int64(len(kv.Key) + len(kv.Value))
	}
	found.Keys = all.Count
	return counted, found
}

func exhausted(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, `quota of role "a" exceeded`)
}

// TestOneTenantExceedsEverything: one tenant writes all that it can, through all servers, in
// transactions and sessions too, until nothing is left to it; the other's writes go on.
func TestOneTenantExceedsEverything(t *testing.T) {
	onlyStoa(t)
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: cheap})
	g := guard(t, newEnv(t, shape{3, 2}, c))
	_, err := g.a.Put(g.ctx, "/a/before", "v")
	require.NoError(t, err)
	limits := auth.Limits{Bytes: 5000, Keys: 60}
	g.setQuota(&stoapb.Quota{Role: "a", MaxBytes: limits.Bytes, MaxKeys: limits.Keys})

	ctx, stop := context.WithCancel(g.ctx)
	var flood sync.WaitGroup
	var refused, accepted atomic.Int64
	for i := range 6 {
		cli := g.as("a", g.Endpoints()[i%3])
		flood.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("/a/%d/%d", i, n)
				var err error
				if n%3 == 0 {
					_, err = cli.Txn(ctx).Then(clientv3.OpPut(key, "v"), clientv3.OpPut("/a/other/"+key, "v")).Commit()
				} else {
					_, err = cli.Put(ctx, key, strings.Repeat("v", n%200))
				}
				switch status.Code(err) {
				case codes.OK:
					accepted.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				}
			}
		})
	}
	for i := range 100 {
		_, err := g.b.Put(g.ctx, fmt.Sprintf("/b/%d", i), strings.Repeat("v", 1000))
		require.NoError(t, err, "another tenant's")
	}
	require.Eventually(t, func() bool { return refused.Load() > 20 }, time.Minute, 10*time.Millisecond)
	stop()
	flood.Wait()
	require.Positive(t, accepted.Load())
	same := func() {
		t.Helper()
		counted, found := g.used("a", "/a/")
		require.Equal(t, found, counted)
		require.LessOrEqual(t, counted.Keys, limits.Keys)
		require.LessOrEqual(t, counted.Bytes, limits.Bytes)
	}
	same()
	large := strings.Repeat("v", int(limits.Bytes))
	_, err = g.a.Put(g.ctx, "/a/large", large)
	exhausted(t, err)
	s := g.session("a", "")
	_, err = s.Put(g.ctx, "/a/large", large)
	exhausted(t, err)
	_, err = g.root.Put(g.ctx, "/a/large", large)
	exhausted(t, err) // whoever it is

	// What is deleted is free at once, on every server.
	_, err = g.a.Delete(g.ctx, "/a/", clientv3.WithPrefix())
	require.NoError(t, err)
	for i := range 3 {
		_, err = g.as("a", g.Endpoints()[i]).Put(g.ctx, fmt.Sprintf("/a/new/%d", i), strings.Repeat("v", 1000))
		require.NoError(t, err)
	}
	_, err = s.Put(g.ctx, "/a/session", strings.Repeat("v", 1000))
	require.NoError(t, err)
	same()
	require.Eventually(t, func() bool {
		_, text := g.httpGet(c.Servers[0].ClientURL + "/metrics")
		return strings.Contains(text, `stoa_tenant_keys{kind="role",tenant="a"} 4`)
	}, time.Minute, 50*time.Millisecond, "this server may have applied less than others")

	for _, srv := range c.Servers {
		_, _, err := srv.Stop()
		require.NoError(t, err)
	}
	require.NoError(t, c.Start(g.ctx))
	g.reconnected(g.root, g.a)
	same()
	_, err = g.a.Put(g.ctx, "/a/large", large)
	exhausted(t, err)
	_, err = g.a.Put(g.ctx, "/a/small", "v")
	require.NoError(t, err)
	same()
	_, err = stoapb.NewQuotasClient(g.a.ActiveConnection()).List(g.ctx, &stoapb.ListQuotasRequest{})
	denied(t, err)
	_, err = stoapb.NewQuotasClient(g.a.ActiveConnection()).Remove(g.ctx, &stoapb.RemoveQuotaRequest{Role: "a"})
	denied(t, err)
	_, err = stoapb.NewQuotasClient(g.root.ActiveConnection()).Remove(g.ctx, &stoapb.RemoveQuotaRequest{Role: "a"})
	require.NoError(t, err)
	_, err = g.a.Put(g.ctx, "/a/large", large)
	require.NoError(t, err)
}
