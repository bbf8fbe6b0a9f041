package compat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/test/process"
)

// TestAuditLog looks for the traces of all kinds of requests in the log of a real server, and
// for values and passwords, of which there must be none.
func TestAuditLog(t *testing.T) {
	onlyStoa(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2, Args: append([]string{"--audit-log=" + path}, cheap...)})
	e := newEnv(t, shape{1, 2}, c)
	_, err := e.cli.Put(e.ctx, "before", "SECRET")
	require.NoError(t, err)
	g := guard(t, e)

	_, err = g.root.UserChangePassword(g.ctx, "b", "SECRET")
	require.NoError(t, err)
	_, err = g.as("a").Put(g.ctx, "/b/1", "SECRET")
	denied(t, err)
	_, err = g.a.Get(g.ctx, "/b/", clientv3.WithPrefix())
	denied(t, err)
	w := <-g.a.Watch(g.ctx, "/b/watched")
	denied(t, w.Err())
	_, err = g.a.MemberRemove(g.ctx, 1)
	denied(t, err)
	_, err = clientv3.New(clientv3.Config{Endpoints: g.Endpoints(), Username: "a", Password: "SECRET", DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.ErrorContains(t, err, "authentication failed")
	s := g.session("a", "")
	_, err = s.Put(g.ctx, "/a/session", "SECRET")
	require.NoError(t, err)
	_, err = s.Put(g.ctx, "/b/session", "SECRET")
	denied(t, err)
	_, err = s.Delete(g.ctx, "/a/session")
	require.NoError(t, err)
	require.NoError(t, s.Close(g.ctx))
	lock, elect := lockpb.NewLockClient(g.a.ActiveConnection()), lockpb.NewElectionClient(g.a.ActiveConnection())
	lease, err := g.a.Grant(g.ctx, 600)
	require.NoError(t, err)
	_, err = lock.Lock(g.ctx, &lockpb.LockRequest{Name: []byte("/b/lock"), Lease: int64(lease.ID)})
	denied(t, err)
	locked, err := lock.Lock(g.ctx, &lockpb.LockRequest{Name: []byte("/a/lock"), Lease: int64(lease.ID)})
	require.NoError(t, err)
	_, err = lock.Unlock(g.ctx, &lockpb.UnlockRequest{Key: locked.Key})
	require.NoError(t, err)
	elected, err := elect.Campaign(g.ctx, &lockpb.CampaignRequest{Name: []byte("/a/elect"), Lease: int64(lease.ID), Value: []byte("SECRET")})
	require.NoError(t, err)
	_, err = elect.Proclaim(g.ctx, &lockpb.ProclaimRequest{Leader: elected.Leader, Value: []byte("SECRET")})
	require.NoError(t, err)
	_, err = elect.Resign(g.ctx, &lockpb.ResignRequest{Leader: elected.Leader})
	require.NoError(t, err)
	_, err = g.root.Put(g.ctx, "/em/x", `return { operations = { { ops = {"put"}, key = "/x" } }, put = function() error("SECRET") end }`)
	require.Error(t, err, "it is no extension")
	resp, err := http.Post(c.Servers[0].ClientURL+"/v3/kv/put", "application/json", strings.NewReader(`{"key": "anNvbg==", "value": "U0VDUkVU"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "it has no user")
	_, err = g.root.Compact(g.ctx, 2)
	require.NoError(t, err)
	_, _, err = c.Servers[0].Stop()
	require.NoError(t, err)

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), "SECRET")
	has := auditLines(t, text)
	id := func(m, user, key, code string) [4]string { return [4]string{m, user, key, code} }
	for _, want := range [][4]string{
		id("/etcdserverpb.KV/Put", "", "before", "OK"),
		id("/etcdserverpb.Auth/AuthEnable", "", "", "OK"),
		id("/etcdserverpb.Auth/RoleGrantPermission", "", "/a/", "OK"),
		id("/etcdserverpb.Auth/UserChangePassword", "root", "", "OK"),
		id("/etcdserverpb.KV/Put", "a", "/b/1", "PermissionDenied"),
		id("/etcdserverpb.KV/Range", "a", "/b/", "PermissionDenied"),
		id("/etcdserverpb.Watch/Watch", "a", "/b/watched", "PermissionDenied"),
		id("/etcdserverpb.Cluster/MemberRemove", "a", "", "PermissionDenied"),
		id("/etcdserverpb.Auth/Authenticate", "", "", "InvalidArgument"),
		id("/stoa.v1.Sessions/Open/PUT", "a", "/a/session", "OK"),
		id("/stoa.v1.Sessions/Open/PUT", "a", "/b/session", "PermissionDenied"),
		id("/stoa.v1.Sessions/Open/DELETE_RANGE", "a", "/a/session", "OK"),
		id("/stoa.v1.Sessions/Open/CLOSE", "a", "", "OK"),
		id("/v3lockpb.Lock/Lock", "a", "/b/lock", "Unknown"), // as etcd answers
		id("/v3lockpb.Lock/Lock", "a", string(locked.Key), "OK"),
		id("/v3lockpb.Lock/Unlock", "a", string(locked.Key), "OK"),
		id("/v3electionpb.Election/Campaign", "a", string(elected.Leader.Key), "OK"),
		id("/v3electionpb.Election/Proclaim", "a", string(elected.Leader.Key), "OK"),
		id("/v3electionpb.Election/Resign", "a", string(elected.Leader.Key), "OK"),
		id("/etcdserverpb.KV/Put", "root", "/em/x", "InvalidArgument"),
		id("/etcdserverpb.KV/Put", "", "json", "InvalidArgument"),
		id("/etcdserverpb.KV/Compact", "root", "", "OK"),
	} {
		require.Contains(t, has, want)
	}
}

// auditLines are the lines by method, user, first key and code.
func auditLines(t *testing.T, text []byte) map[[4]string]bool {
	has := map[[4]string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var r audit.Record
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		key := ""
		if len(r.Keys) > 0 {
			key = r.Keys[0].Key
		}
		has[[4]string{r.Method, r.User, key, r.Code}] = true
		require.Contains(t, r.Client, "127.0.0.1", "also through the gateway")
	}
	return has
}
