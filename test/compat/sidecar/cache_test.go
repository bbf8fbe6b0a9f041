package sidecar

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

const (
	cacheServing  = `stoa_sidecar_cache_serving\{prefix="/c/"\}`
	cacheTooLarge = `stoa_sidecar_cache_too_large\{prefix="/c/"\}`
	cachedSerial  = `stoa_sidecar_cache_reads_total\{level="serializable"\}`
	cachedStrict  = `stoa_sidecar_cache_reads_total\{level="linearizable"\}`
)

// caching starts a sidecar that keeps the keys below /c/, and waits until it does.
func caching(t *testing.T, c *process.Cluster, name string, flags ...string) *process.Server {
	s := beside(t, c, name, append([]string{"--cache=/c/"}, flags...)...)
	serves(t, s)
	return s
}

func serves(t *testing.T, s *process.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return number(s, cacheServing) == 1 }, limit, time.Millisecond)
}

// TestCache: clients of two sidecars and of a member write and read keys that are cached: a linearizable
// read shows what was written before, wherever; many share questions.
func TestCache(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	ctx := soon(t)
	direct := dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	for i := range 500 { // more than one page
		_, err := direct.Put(ctx, fmt.Sprintf("/c/before/%03d", i), "v")
		require.NoError(t, err)
	}
	one, two := caching(t, c, "one"), caching(t, c, "two")
	clients := []*clientv3.Client{direct, dial(t, one.ClientURL, clientv3.Config{}), dial(t, two.ClientURL, clientv3.Config{})}
	got, err := clients[1].Get(ctx, "/c/before/", clientv3.WithPrefix(), clientv3.WithLimit(7))
	require.NoError(t, err)
	require.EqualValues(t, 500, got.Count)
	require.True(t, got.More)
	want, err := direct.Get(ctx, "/c/before/", clientv3.WithPrefix())
	require.NoError(t, err)
	got, err = clients[2].Get(ctx, "/c/before/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, want.Kvs, got.Kvs)
	require.Equal(t, want.Header.ClusterId, got.Header.ClusterId)
	for i := range 300 {
		w, r := clients[i%3], clients[(i+1+i/3%2)%3]
		put, err := w.Put(ctx, fmt.Sprintf("/c/%d", i%10), fmt.Sprint(i))
		require.NoError(t, err)
		got, err := r.Get(ctx, fmt.Sprintf("/c/%d", i%10))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(got.Kvs[0].Value))
		require.GreaterOrEqual(t, got.Header.Revision, put.Header.Revision)
		other, err := w.Put(ctx, fmt.Sprintf("/elsewhere/%d", i), "")
		require.NoError(t, err)
		got, err = r.Get(ctx, "/c/none")
		require.NoError(t, err)
		require.GreaterOrEqual(t, got.Header.Revision, other.Header.Revision, "the order is over all keys")
	}
	require.Greater(t, number(one, cachedStrict), 100)

	before, questions := number(one, cachedStrict), number(one, "stoa_sidecar_cache_questions_total")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				_, err := clients[1].Get(ctx, "/c/1")
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	read := number(one, cachedStrict) - before
	require.Greater(t, read, 500)
	require.Less(t, number(one, "stoa_sidecar_cache_questions_total")-questions, read/2, "reads share questions")
}

// TestCacheShowsWhatWasSeen: a connection's serializable reads of cached keys show what it has written, read or watched
// before, of whatever keys, and what was there before that.
func TestCacheShowsWhatWasSeen(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	for _, transport := range []string{"own", "grpc-go"} {
		s := caching(t, c, transport, "--grpc-transport="+transport)
		direct, cli := dial(t, c.Servers[0].ClientURL, clientv3.Config{}), dial(t, s.ClientURL, clientv3.Config{})
		ctx := soon(t)
		feed := cli.Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-feed
		put := func(by *clientv3.Client, key, value string) {
			_, err := by.Put(ctx, key, value)
			require.NoError(t, err)
		}
		shows := func(i int, what string) {
			got, err := cli.Get(ctx, "/c/k", clientv3.WithSerializable())
			require.NoError(t, err)
			require.Len(t, got.Kvs, 1)
			require.Equal(t, fmt.Sprint(i), string(got.Kvs[0].Value), what)
		}
		before := number(s, cachedSerial)
		for i := 0; i < 160; i += 4 {
			put(cli, "/c/k", fmt.Sprint(i))
			shows(i, "its own write")

			put(direct, "/c/k", fmt.Sprint(i+1))
			put(cli, "/elsewhere", "")
			shows(i+1, "what was there before its own write of another key")

			put(direct, "/c/k", fmt.Sprint(i+2))
			_, err := cli.Get(ctx, "/elsewhere")
			require.NoError(t, err)
			shows(i+2, "what was there before a read of another key")

			put(direct, "/c/k", fmt.Sprint(i+3))
			put(direct, "/watched/k", "")
			event := <-feed
			require.NoError(t, event.Err())
			shows(i+3, "what was there before an event of another key")
		}
		require.Greater(t, number(s, cachedSerial)-before, 40, "many are answered from memory")
	}
}

// TestCacheWithoutCluster: what is cached is answered without the cluster, if it may be old.
func TestCacheWithoutCluster(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := caching(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	put, err := cli.Put(ctx, "/c/k", "v")
	require.NoError(t, err)
	old := func() (*clientv3.GetResponse, error) { return cli.Get(ctx, "/c/k", clientv3.WithSerializable()) }
	require.Eventually(t, func() bool {
		got, err := old()
		return err == nil && got.Header.Revision >= put.Header.Revision
	}, limit, time.Millisecond)
	_, err = cli.Put(ctx, "/elsewhere", "what the cached keys need not be as new as while there is no member")
	require.NoError(t, err)
	require.NoError(t, c.Servers[0].Kill())
	for range 10 {
		got, err := old()
		require.NoError(t, err)
		require.Equal(t, "v", string(got.Kvs[0].Value))
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = cli.Get(short, "/c/k")
	require.Error(t, err, "the cluster can't tell whether that is the latest")
	require.NoError(t, c.Restart(ctx, c.Servers[0]))
	require.Eventually(t, func() bool {
		before := number(s, cachedStrict)
		got, err := cli.Get(ctx, "/c/k")
		return err == nil && string(got.Kvs[0].Value) == "v" && number(s, cachedStrict) > before
	}, limit, time.Millisecond)
}

// TestCacheIsBounded: a prefix that doesn't fit is forwarded, and its memory is given back.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	s := caching(t, c, "sidecar", "--cache-memory=200000")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	for i := range 40 {
		_, err := cli.Put(ctx, fmt.Sprintf("/c/%d", i), strings.Repeat("x", 10_000))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return number(s, cacheTooLarge) == 1 }, limit, time.Millisecond)
	require.Zero(t, number(s, cacheServing))
	require.Zero(t, number(s, `stoa_sidecar_cache_bytes\{prefix="/c/"\}`))
	got, err := cli.Get(ctx, "/c/", clientv3.WithPrefix(), clientv3.WithSerializable())
	require.NoError(t, err)
	require.EqualValues(t, 40, got.Count)
}

// TestCacheAndExtensions: while there are extensions, which may answer a read, each read is a member's.
func TestCacheAndExtensions(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := caching(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	_, err := cli.Get(ctx, "/c/k")
	require.NoError(t, err)
	require.Equal(t, 1, number(s, cachedStrict))
	_, err = cli.Put(ctx, "/em/reads", `return {
  scope = { "/c/" },
  operations = { { op = "read", prefix = "/c/" } },
  read = function(request) return "by the extension" end,
}`)
	require.NoError(t, err)
	got, err := cli.Get(ctx, "/c/k")
	require.NoError(t, err)
	require.Equal(t, "by the extension", string(got.Kvs[0].Value))
	require.Equal(t, 1, number(s, cachedStrict))
	_, err = cli.Delete(ctx, "/em/reads")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := cli.Get(ctx, "/c/k")
		return err == nil && number(s, cachedStrict) > 1
	}, limit, time.Millisecond)
}

// TestCacheAndPermissions: a user who loses the right to read cached keys loses it here, too.
func TestCacheAndPermissions(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	ctx := soon(t)
	admin := dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	for _, user := range []string{"root", "app"} {
		_, err := admin.UserAdd(ctx, user, "secret")
		require.NoError(t, err)
	}
	_, err := admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.RoleAdd(ctx, "reads")
	require.NoError(t, err)
	grant := func(prefix string) {
		_, err := admin.RoleGrantPermission(ctx, "reads", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
	}
	grant("/c/")
	grant("/em/")
	_, err = admin.UserGrantRole(ctx, "app", "reads")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
	admin = dial(t, c.Servers[0].ClientURL, clientv3.Config{Username: "root", Password: "secret"})

	s := caching(t, c, "sidecar", "--user=app:secret")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	for range 5 {
		before := number(s, cachedStrict)
		_, err = cli.Get(ctx, "/c/k")
		require.NoError(t, err)
		require.Greater(t, number(s, cachedStrict), before)
		_, err = admin.RoleRevokePermission(ctx, "reads", "/c/", "/c0")
		require.NoError(t, err)
		_, err = cli.Get(ctx, "/c/k")
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.Eventually(t, func() bool {
			_, err = cli.Get(ctx, "/c/k", clientv3.WithSerializable())
			return err != nil
		}, limit, time.Millisecond)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		grant("/c/")
		serves(t, s)
	}
	other := dial(t, s.ClientURL, clientv3.Config{Username: "root", Password: "secret"})
	before := number(s, cachedStrict)
	_, err = other.Get(ctx, "/c/k")
	require.NoError(t, err)
	require.Equal(t, before, number(s, cachedStrict), "a client's own user is asked for by its own call")
}

// TestCacheOfAnotherHistory: the cluster is replaced by one that has less, as by a restored backup.
func TestCacheOfAnotherHistory(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	s := caching(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	for i := range 20 {
		_, err := cli.Put(ctx, "/c/k", fmt.Sprint(i))
		require.NoError(t, err)
	}
	require.NoError(t, c.Servers[0].Kill())
	require.NoError(t, os.RemoveAll(c.Servers[0].DataDir))
	require.NoError(t, c.Restart(ctx, c.Servers[0]))
	require.Eventually(t, func() bool {
		got, err := cli.Get(ctx, "/c/k", clientv3.WithSerializable())
		return err == nil && len(got.Kvs) == 0
	}, limit, time.Millisecond)
	got, err := cli.Get(ctx, "/c/k")
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
	serves(t, s)
}

// TestWatchesOfCachedKeys: watches within a cached prefix, of single keys and of ranges, are none at the members, and have
// the events that any watch has; also those from a revision of before.
func TestWatchesOfCachedKeys(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	s := caching(t, c, "one")
	ctx := soon(t)
	cli, direct := dial(t, s.ClientURL, clientv3.Config{}), dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	first, err := direct.Put(ctx, "/c/5", "first")
	require.NoError(t, err)
	before := number(s, "stoa_sidecar_upstream_watchers")
	var feeds []clientv3.WatchChan
	for i := range 10 {
		feeds = append(feeds, cli.Watch(ctx, fmt.Sprintf("/c/%d", i), clientv3.WithRev(first.Header.Revision)))
	}
	all := cli.Watch(ctx, "/c/", clientv3.WithRange("/c/9"), clientv3.WithRev(first.Header.Revision), clientv3.WithFilterDelete())
	for i := range 10 {
		_, err := direct.Put(ctx, fmt.Sprintf("/c/%d", i), "second")
		require.NoError(t, err)
	}
	_, err = direct.Delete(ctx, "/c/5")
	require.NoError(t, err)
	take := func(feed clientv3.WatchChan, n int) (got []string) {
		for len(got) < n {
			r := <-feed
			require.NoError(t, r.Err())
			for _, e := range r.Events {
				got = append(got, fmt.Sprint(e.Type, " ", string(e.Kv.Key), " ", string(e.Kv.Value)))
			}
		}
		return got
	}
	for i, feed := range feeds {
		want := []string{fmt.Sprintf("PUT /c/%d second", i)}
		if i == 5 {
			want = []string{"PUT /c/5 first", "PUT /c/5 second", "DELETE /c/5 "}
		}
		require.Equal(t, want, take(feed, len(want)))
	}
	require.Len(t, take(all, 10), 10, "first, and second of 0 to 8")
	require.Equal(t, before, number(s, "stoa_sidecar_upstream_watchers"))
	require.GreaterOrEqual(t, number(s, "stoa_sidecar_watchers"), 11)

	for _, m := range c.Servers {
		require.NoError(t, m.Kill())
	}
	got, err := cli.Get(ctx, "/c/1", clientv3.WithSerializable())
	require.NoError(t, err)
	require.Equal(t, "second", string(got.Kvs[0].Value))
	require.Contains(t, page(s.ClientURL+"/readyz"), "cluster failed")
	require.Contains(t, page(s.ClientURL+"/readyz?cached"), "ok for serializable reads")
}

// TestLimits: what one connection may have under way is bounded, and another one has its own bound.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	for _, transport := range []string{"own", "grpc-go"} {
		s := beside(t, c, "limited-"+transport, "--grpc-transport="+transport, "--max-requests=4")
		cli, other := dial(t, s.ClientURL, clientv3.Config{}), dial(t, s.ClientURL, clientv3.Config{})
		require.NoError(t, c.Servers[0].Pause())
		ctx, cancel := context.WithCancel(soon(t))
		answers := make(chan error, 8)
		for range 8 {
			go func() {
				_, err := cli.Put(ctx, "/limits", "v")
				answers <- err
			}()
		}
		for range 4 {
			require.ErrorIs(t, <-answers, rpctypes.ErrTooManyRequests)
		}
		done := make(chan error, 1)
		go func() {
			_, err := other.Put(ctx, "/limits", "other")
			done <- err
		}()
		require.NoError(t, c.Servers[0].Resume())
		for range 4 {
			require.NoError(t, <-answers)
		}
		require.NoError(t, <-done)
		cancel()
	}
}
