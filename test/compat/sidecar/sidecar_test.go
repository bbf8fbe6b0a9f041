package sidecar

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

const limit = time.Minute

// beside starts a sidecar of the cluster.
func beside(t *testing.T, c *process.Cluster, name string, flags ...string) *process.Server {
	t.Helper()
	s, err := c.Sidecar(name, flags...)
	require.NoError(t, err)
	return kept(t, name, s)
}

// kept starts a sidecar, which ends with the test.
func kept(t *testing.T, name string, s *process.Server) *process.Server {
	t.Helper()
	t.Cleanup(func() {
		_ = s.Kill()
		if t.Failed() {
			t.Logf("%s: %s", name, s.LogTail(2000))
		}
	})
	again(t, s)
	return s
}

func again(t *testing.T, s *process.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, s.Start())
	require.NoError(t, s.WaitReady(ctx))
}

func dial(t *testing.T, endpoint string, o clientv3.Config) *clientv3.Client {
	t.Helper()
	o.Endpoints, o.Logger, o.DialTimeout = []string{endpoint}, zap.NewNop(), limit
	c, err := clientv3.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func page(url string) string {
	answer, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return string(b)
}

// logged are the log lines of etcd's client.
var logged = regexp.MustCompile(`(?m)^\{"level".*\n`)

// TestEtcdctl: commands of the real etcdctl, through the sidecar and to a member, print the same.
func TestEtcdctl(t *testing.T) {
	t.Parallel()
	etcdctl, err := process.Peer("etcdctl")
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := beside(t, c, "sidecar")
	run := func(endpoint string, args ...string) string {
		out, err := exec.CommandContext(soon(t), etcdctl, append([]string{"--endpoints=" + endpoint}, args...)...).CombinedOutput()
		printed := logged.ReplaceAllString(string(out), "")
		if err != nil {
			return fmt.Sprintf("%s%v", printed, err)
		}
		return printed
	}
	require.Equal(t, "OK\n", run(s.ClientURL, "put", "/a/1", "one"))
	require.Equal(t, "OK\n", run(s.ClientURL, "put", "/a/2", "two"))
	require.Equal(t, "OK\none\n", strings.ReplaceAll(run(s.ClientURL, "put", "--prev-kv", "/a/1", "uno"), "/a/1\n", ""))
	for _, args := range [][]string{
		{"get", "/a/", "--prefix", "-w", "json"}, {"get", "/a/1", "--rev=2", "-w", "fields"}, {"get", "/a/1", "--rev=100"},
		{"member", "list", "-w", "json"}, {"lease", "list"}, {"lease", "timetolive", "17"}, {"user", "list"}, {"user", "get", "nobody"},
		{"alarm", "list"}, {"get", ""}, {"lease", "revoke", "17"}, {"compact", "1000"}, {"endpoint", "hashkv", "-w", "simple"},
	} {
		direct, through := run(c.Servers[0].ClientURL, args...), run(s.ClientURL, args...)
		require.Equal(t, direct, strings.ReplaceAll(through, s.ClientURL, c.Servers[0].ClientURL), "%v", args)
	}
	require.Contains(t, run(s.ClientURL, "endpoint", "health"), "is healthy")
	require.Equal(t, "1\n", run(s.ClientURL, "del", "/a/2"))
	file := filepath.Join(t.TempDir(), "snapshot")
	require.Contains(t, run(s.ClientURL, "snapshot", "save", file), "Snapshot saved at")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Positive(t, info.Size())
	require.Contains(t, run(s.ClientURL, "lock", "/lock", "echo", "locked"), "locked")
}

// TestClient: watches, leases, locks and transactions of clientv3, over a Unix socket.
func TestClient(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	socket := "unix://" + filepath.Join(t.TempDir(), "etcd.sock")
	s := beside(t, c, "sidecar", "--listen-client-urls="+socket, "--listen-metrics-urls=http://127.0.0.1:0")
	require.NotEmpty(t, s)
	cli := dial(t, socket, clientv3.Config{})
	ctx := soon(t)
	watched := cli.Watch(ctx, "/w/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	lease, err := cli.Grant(ctx, 60)
	require.NoError(t, err)
	alive, err := cli.KeepAlive(ctx, lease.ID)
	require.NoError(t, err)
	require.EqualValues(t, 60, (<-alive).TTL)
	put, err := cli.Put(ctx, "/w/1", "a", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	txn, err := cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/w/1"), "=", put.Header.Revision)).
		Then(clientv3.OpPut("/w/1", "b", clientv3.WithLease(lease.ID)), clientv3.OpGet("/w/", clientv3.WithPrefix())).Commit()
	require.NoError(t, err)
	require.True(t, txn.Succeeded)
	require.Equal(t, "b", string(txn.Responses[1].GetResponseRange().Kvs[0].Value))
	_, err = cli.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	var events []string
	for len(events) < 3 {
		for _, e := range (<-watched).Events {
			prev := ""
			if e.PrevKv != nil {
				prev = string(e.PrevKv.Value)
			}
			events = append(events, fmt.Sprint(e.Type, string(e.Kv.Value), prev))
		}
	}
	require.Equal(t, []string{"PUTa", "PUTba", "DELETEb"}, events)
	_, err = cli.Put(ctx, "k", "v", clientv3.WithLease(lease.ID))
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	_, err = cli.Put(ctx, "k", "v", clientv3.WithLease(math.MinInt64)) // not that of a session of the sidecar's
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	_, err = cli.Put(ctx, "k", strings.Repeat("x", 1700<<10))
	require.ErrorIs(t, err, rpctypes.ErrRequestTooLarge)
	owner, err := concurrency.NewSession(cli, concurrency.WithTTL(60))
	require.NoError(t, err)
	mutex := concurrency.NewMutex(owner, "/m")
	require.NoError(t, mutex.Lock(ctx))
	require.NoError(t, mutex.Unlock(ctx))
	require.NoError(t, owner.Close())
}

// TestMembersFail: the sidecar goes on with the members that are up, and finds all of them again
// after none was.
func TestMembersFail(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	s := beside(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	works := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := cli.Put(ctx, "k", "v")
		return err == nil
	}
	require.Eventually(t, works, limit, 10*time.Millisecond)
	require.NoError(t, c.Servers[0].Kill())
	require.Eventually(t, works, limit, 10*time.Millisecond)
	require.Eventually(t, func() bool { return page(s.ClientURL+"/readyz") == "ok\n" }, limit, 10*time.Millisecond)
	require.NoError(t, c.Restart(soon(t), c.Servers[0]))
	for _, dead := range c.Servers {
		require.NoError(t, dead.Kill())
	}
	require.Eventually(t, func() bool { return strings.Contains(page(s.ClientURL+"/readyz"), "failed") }, limit, 10*time.Millisecond)
	for _, up := range c.Servers {
		require.NoError(t, up.Start())
	}
	require.Eventually(t, works, limit, 10*time.Millisecond)
	require.Eventually(t, func() bool { return page(s.ClientURL+"/health") == `{"health":"true","reason":""}` }, limit, 10*time.Millisecond)
}

// TestUsers: a client without credentials has the rights of the sidecar's user, one with a
// token its own. TLS is the sidecar's matter.
func TestUsers(t *testing.T) {
	t.Parallel()
	ca := process.NewAuthority(t)
	c := process.NewT(t, process.Spec{Nodes: 1, Partitions: 2, TLS: true, Args: []string{
		"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server.key")}})
	require.NoError(t, c.Start(soon(t)))
	admin := dial(t, c.Servers[0].ClientURL, clientv3.Config{TLS: ca.Client("")})
	ctx := soon(t)
	for user, prefix := range map[string]string{"root": "", "app": "/app/", "other": "/other/"} {
		_, err := admin.UserAdd(ctx, user, "secret")
		require.NoError(t, err)
		_, err = admin.RoleAdd(ctx, user)
		require.NoError(t, err)
		if prefix != "" {
			_, err = admin.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			require.NoError(t, err)
		}
		_, err = admin.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := admin.AuthEnable(ctx)
	require.NoError(t, err)

	s := beside(t, c, "sidecar", "--cacert="+ca.File("ca.pem"), "--user=app", "--password=secret")
	own := dial(t, s.ClientURL, clientv3.Config{})
	require.Eventually(t, func() bool { return page(s.ClientURL+"/readyz") == "ok\n" }, limit, 10*time.Millisecond)
	_, err = own.Put(ctx, "/app/1", "v")
	require.NoError(t, err)
	_, err = own.Put(ctx, "/other/1", "v")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = own.UserList(ctx)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	other := dial(t, s.ClientURL, clientv3.Config{Username: "other", Password: "secret"})
	_, err = other.Put(ctx, "/other/1", "v")
	require.NoError(t, err)
	_, err = other.Get(ctx, "/app/1")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Username: "other", Password: "wrong", DialTimeout: limit, Logger: zap.NewNop()})
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)

	// No user at all: the cluster refuses, not the sidecar.
	none := beside(t, c, "none", "--cacert="+ca.File("ca.pem"))
	_, err = dial(t, none.ClientURL, clientv3.Config{}).Put(ctx, "/app/1", "v")
	require.ErrorIs(t, err, rpctypes.ErrUserEmpty)
}

// TestStops: SIGTERM ends a sidecar with an open watch, with exit code 0.
func TestStops(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	s := beside(t, c, "sidecar", "--drain-timeout=1m")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	watched := cli.Watch(soon(t), "k", clientv3.WithCreatedNotify())
	<-watched
	require.Eventually(t, func() bool {
		_, err := cli.Put(soon(t), "kept", "v")
		require.NoError(t, err)
		return !strings.Contains(page(s.ClientURL+"/metrics"), "stoa_sidecar_session_requests_total 0\n")
	}, limit, 10*time.Millisecond)
	code, took, err := s.Stop()
	require.NoError(t, err)
	require.Zero(t, code)
	require.Less(t, took, 30*time.Second)

	// Its sessions are closed, and with them nothing was deleted that a client has put.
	direct := dial(t, c.Servers[0].ClientURL, clientv3.Config{})
	kept, err := direct.Get(soon(t), "kept")
	require.NoError(t, err)
	require.Len(t, kept.Kvs, 1)
	leases, err := direct.Leases(soon(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases)

	// The watch goes on when there is a sidecar again.
	again(t, s)
	_, err = cli.Put(soon(t), "k", "v")
	require.NoError(t, err)
	require.Equal(t, "v", string((<-watched).Events[0].Kv.Value))
	require.NoError(t, s.Signal(syscall.SIGINT))
	code, err = s.Wait(limit)
	require.NoError(t, err)
	require.Zero(t, code)
}
