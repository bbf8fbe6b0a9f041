package compat

import (
	"context"
	"fmt"
	"io"
	"net/http"
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
	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// sessionOn is a session of a user on one server.
func (g *guarded) sessionOn(user, endpoint string) *client.Session {
	g.t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, Username: user, Password: user})
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(g.ctx)
	require.NoError(g.t, err)
	return s
}

// opened opens a watch, and returns the reason if it is refused.
func (g *guarded) opened(ctx context.Context, w clientv3.Watcher, key string) (clientv3.WatchChan, error) {
	g.t.Helper()
	ch := w.Watch(ctx, key, clientv3.WithCreatedNotify())
	select {
	case r := <-ch:
		return ch, r.Err()
	case <-time.After(time.Minute):
		require.FailNow(g.t, "the watch isn't answered")
		return nil, nil
	}
}

// watchersOf are the open watches of a role that a server counts, and their limit.
func (g *guarded) watchersOf(server *clientv3.Client, role string) (open, limit int64) {
	r, err := stoapb.NewQuotasClient(server.ActiveConnection()).List(g.ctx, &stoapb.ListQuotasRequest{})
	require.NoError(g.t, err)
	for _, u := range r.Quotas {
		if u.Quota.Role == role {
			open, limit = u.Watchers, u.Quota.MaxWatchers
		}
	}
	return open, limit
}

// TestTenantsAreLimitedOnEachServer: one tenant opens as many watches as it can, and asks as
// often as it can, on all servers and in sessions; the other's requests go on.
func TestTenantsAreLimitedOnEachServer(t *testing.T) {
	onlyStoa(t)
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: cheap})
	g := guard(t, newEnv(t, shape{3, 2}, c))
	t.Run("Watchers", func(t *testing.T) { g.on(t).testWatchers() })
	t.Run("Rate", func(t *testing.T) { g.on(t).testRate() })
}

// on is the same for a part of the test.
func (g *guarded) on(t *testing.T) *guarded {
	e := *g.env
	e.t = t
	part := *g
	part.env = &e
	return &part
}

const tooManyWatches = `quota of role "a" exceeded: 3 watches on each server`

func (g *guarded) testWatchers() {
	t, one := g.t, g.Endpoints()[0]
	root := g.as("root", one)
	counted := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { open, limit := g.watchersOf(root, "a"); return open == n && limit == 3 }, time.Minute, 10*time.Millisecond)
	}
	g.setQuota(&stoapb.Quota{Role: "a", MaxWatchers: 3})
	counted(0)
	a := g.as("a", one)
	var open []clientv3.WatchChan
	first, end := context.WithCancel(g.ctx)
	for i := range 3 {
		ctx := g.ctx
		if i == 0 {
			ctx = first
		}
		ch, err := g.opened(ctx, a, fmt.Sprintf("/a/%d", i))
		require.NoError(t, err)
		open = append(open, ch)
	}
	_, err := g.opened(g.ctx, a, "/a/more")
	require.ErrorContains(t, err, tooManyWatches)
	s := g.sessionOn("a", one)
	_, err = g.opened(g.ctx, s.Etcd(), "/a/more")
	require.ErrorContains(t, err, tooManyWatches)
	counted(3)

	_, err = g.opened(g.ctx, g.as("b", one), "/b/k")
	require.NoError(t, err, "another tenant's")
	_, err = g.opened(g.ctx, g.as("a", g.Endpoints()[1]), "/a/more")
	require.NoError(t, err, "on another server")
	_, err = s.Put(g.ctx, "/a/1", "v")
	require.NoError(t, err)
	select {
	case r := <-open[1]:
		require.NoError(t, r.Err())
		require.Len(t, r.Events, 1, "the stream goes on")
	case <-time.After(time.Minute):
		require.FailNow(t, "no event")
	}

	// What ends makes room, for a session too, whose watches count as well.
	end()
	counted(2)
	_, err = g.opened(g.ctx, s.Etcd(), "/a/more")
	require.NoError(t, err)
	_, err = g.opened(g.ctx, a, "/a/more")
	require.ErrorContains(t, err, tooManyWatches)
	require.NoError(t, s.Close(g.ctx))
	counted(2)
	_, text := g.httpGet(one + "/metrics")
	require.Contains(t, text, `stoa_tenant_watchers{kind="role",tenant="a"} 2`)
	require.Contains(t, text, `stoa_tenant_refused_watchers_total{kind="role",tenant="a"} 3`)
}

const tooOften = `quota of role "a" exceeded: 2 requests per second on each server`

func (g *guarded) testRate() {
	t := g.t
	sessions := []*client.Session{g.sessionOn("a", g.Endpoints()[0]), g.sessionOn("a", g.Endpoints()[1])}
	others := []*client.Session{g.sessionOn("b", g.Endpoints()[0]), g.sessionOn("b", g.Endpoints()[2])}
	lease, err := g.a.Grant(g.ctx, 600)
	require.NoError(t, err)
	g.setQuota(&stoapb.Quota{Role: "a", MaxRate: 2})

	ctx, stop := context.WithCancel(g.ctx)
	defer stop()
	var flood sync.WaitGroup
	var strange atomic.Value
	kinds := map[string]*atomic.Int64{}
	try := func(kind string, f func() error) {
		n := new(atomic.Int64)
		kinds[kind] = n
		flood.Go(func() {
			for ctx.Err() == nil {
				switch err := f(); {
				case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), tooOften):
					n.Add(1)
				case err != nil && ctx.Err() == nil:
					strange.Store(err)
				}
			}
		})
	}
	on := func(i int) *clientv3.Client { return g.as("a", g.Endpoints()[i]) }
	put, get, txn, grant := on(0), on(1), on(2), on(0)
	try("put", func() error { _, err := put.Put(ctx, "/a/k", "v"); return err })
	try("get", func() error { _, err := get.Get(ctx, "/a/k"); return err })
	try("txn", func() error { _, err := txn.Txn(ctx).Then(clientv3.OpGet("/a/k")).Commit(); return err })
	try("delete", func() error { _, err := txn.Delete(ctx, "/a/none"); return err })
	try("lease", func() error { _, err := grant.Grant(ctx, 600); return err })
	try("session put", func() error { _, err := sessions[0].Put(ctx, "/a/s", "v"); return err })
	try("session get", func() error { _, err := sessions[1].Etcd().Get(ctx, "/a/s"); return err })
	for i := range 100 {
		_, err := g.b.Put(g.ctx, "/b/k", "v")
		require.NoError(t, err, "another tenant's")
		_, err = others[i%2].Put(g.ctx, "/b/s", "v")
		require.NoError(t, err, "another tenant's")
		_, err = others[i%2].Etcd().Get(g.ctx, "/b/s")
		require.NoError(t, err, "another tenant's")
	}
	require.Eventually(t, func() bool {
		for _, n := range kinds {
			if n.Load() < 10 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	// Its lease is renewed meanwhile, but later; a watch and a call over HTTP are refused.
	_, err = g.a.KeepAliveOnce(g.ctx, lease.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		watch, done := context.WithCancel(g.ctx)
		defer done()
		_, err := g.opened(watch, put, "/a/k")
		return err != nil && strings.Contains(err.Error(), tooOften)
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		code, text := g.post("/v3/kv/range", `{"key": "L2Evaw=="}`)
		return code == http.StatusTooManyRequests && strings.Contains(text, "2 requests per second")
	}, time.Minute, time.Millisecond)
	stop()
	flood.Wait()
	require.Nil(t, strange.Load())
	for _, s := range sessions {
		require.Eventually(t, func() bool { _, err := s.Put(g.ctx, "/a/s", "v"); return err == nil }, time.Minute, 100*time.Millisecond, "the session goes on")
	}
	_, text := g.httpGet(g.Endpoints()[0] + "/metrics")
	require.Contains(t, text, `stoa_tenant_refused_requests_total{kind="role",tenant="a"} `)
}

// post calls the gateway of the first server as user a.
func (g *guarded) post(path, body string) (int, string) {
	g.t.Helper()
	call := func(path, token, body string) (int, string) {
		req, err := http.NewRequestWithContext(g.ctx, http.MethodPost, g.Endpoints()[0]+path, strings.NewReader(body))
		require.NoError(g.t, err)
		req.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(g.t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(g.t, err)
		return resp.StatusCode, string(text)
	}
	_, answer := call("/v3/auth/authenticate", "", `{"name": "a", "password": "a"}`)
	_, token, ok := strings.Cut(answer, `"token":"`)
	require.True(g.t, ok, answer)
	token, _, _ = strings.Cut(token, `"`)
	return call(path, token, body)
}
