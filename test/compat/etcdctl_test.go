package compat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// etcdctl runs the real etcdctl on the cluster and returns what it prints.
func (e *env) etcdctl(args ...string) string {
	e.t.Helper()
	out, err := e.tryEtcdctl("", args...)
	require.NoError(e.t, err, "etcdctl %s:\n%s", strings.Join(args, " "), out)
	return out
}

func (e *env) tryEtcdctl(stdin string, args ...string) (string, error) {
	e.t.Helper()
	bin, err := process.Peer("etcdctl")
	require.NoError(e.t, err)
	endpoint := e.Servers[0].ClientURL
	if args[0] != "snapshot" { // which takes one endpoint only
		endpoint = strings.Join(e.Endpoints(), ",")
	}
	cmd := exec.CommandContext(e.ctx, bin, append([]string{"--endpoints=" + endpoint}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return strings.TrimRight(out.String(), "\n"), err
}

func TestEtcdctlKV(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		a, b, c := e.key("a", 0), e.key("b", 0), e.key("c", 0)
		require.Equal(t, "OK", e.etcdctl("put", a, "1"))
		require.Equal(t, "OK\n"+a+"\n1", e.etcdctl("put", "--prev-kv", a, "2"))
		e.etcdctl("put", b, "3")
		e.etcdctl("put", c, "4")
		require.Equal(t, a+"\n2", e.etcdctl("get", a))
		require.Equal(t, "2", e.etcdctl("get", "--print-value-only", a))
		require.Equal(t, strings.Join([]string{a, "2", b, "3", c, "4"}, "\n"), e.etcdctl("get", "--prefix", e.root))
		require.Equal(t, strings.Join([]string{c, "", b}, "\n"),
			e.etcdctl("get", "--prefix", "--keys-only", "--order=DESCEND", "--sort-by=KEY", "--limit=2", e.root))
		require.Equal(t, "2", e.etcdctl("del", "--range", a, c), "up to, but without, the end")
		require.Equal(t, c+"\n4", e.etcdctl("get", "--from-key", e.root+"a/")[:len(c)+2])
		require.Equal(t, "1", e.etcdctl("del", "--prefix", e.root))
		out, err := e.tryEtcdctl("", "put", "", "v")
		require.Error(t, err)
		require.Contains(t, out, "key is not provided")
	})
}

func TestEtcdctlTxn(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		a, b := e.key("a", 0), e.key("b", 0)
		e.etcdctl("put", a, "1")
		out, err := e.tryEtcdctl(fmt.Sprintf("value(\"%s\") = \"1\"\n\nput %s yes\nget %s\n\nput %s no\n\n", a, b, a, b), "txn")
		require.NoError(t, err, out)
		require.Equal(t, strings.Join([]string{"SUCCESS", "", "OK", "", a, "1"}, "\n"), out)
		out, err = e.tryEtcdctl(fmt.Sprintf("mod(\"%s\") = \"1\"\n\nput %s yes\n\nput %s no\n\n", a, b, b), "txn")
		require.NoError(t, err, out)
		require.Equal(t, "FAILURE\n\nOK", out)
		require.Equal(t, "no", e.etcdctl("get", "--print-value-only", b))
	})
}

func TestEtcdctlWatch(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "1")
		e.put(e.key("b", 0), "2")
		_, err := e.cli.Delete(e.ctx, e.key("a", 0))
		require.NoError(t, err)
		bin, err := process.Peer("etcdctl")
		require.NoError(t, err)
		cmd := exec.CommandContext(e.ctx, bin, "--endpoints="+strings.Join(e.Endpoints(), ","),
			"watch", "--prefix", fmt.Sprintf("--rev=%d", rev), e.root)
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		want := strings.Join([]string{"PUT", e.key("a", 0), "1", "PUT", e.key("b", 0), "2", "DELETE", e.key("a", 0)}, "\n")
		require.Eventually(t, func() bool { return strings.HasPrefix(out.String(), want) }, time.Minute, 20*time.Millisecond,
			"%s", &out)
	})
}

func TestEtcdctlLease(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		out := e.etcdctl("lease", "grant", "300")
		id := strings.Fields(out)[1]
		require.Equal(t, "lease "+id+" granted with TTL(300s)", out)
		e.etcdctl("put", "--lease="+id, e.key("a", 0), "v")
		require.Contains(t, e.etcdctl("lease", "timetolive", "--keys", id), "attached keys(["+e.key("a", 0)+"])")
		require.Contains(t, e.etcdctl("lease", "list"), id)
		require.Contains(t, e.etcdctl("lease", "keep-alive", "--once", id), "keepalived with TTL(300)")
		require.Equal(t, "lease "+id+" revoked", e.etcdctl("lease", "revoke", id))
		require.Empty(t, e.etcdctl("get", e.key("a", 0)))
	})
}

func TestEtcdctlCluster(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		health := e.etcdctl("endpoint", "health")
		require.Equal(t, e.nodes, strings.Count(health, "is healthy"), health)

		var status []struct {
			Endpoint string
			Status   struct {
				Version string `json:"version"`
				Leader  uint64 `json:"leader"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(e.etcdctl("endpoint", "status", "-w", "json")), &status))
		require.Len(t, status, e.nodes)
		for _, s := range status {
			require.Equal(t, "3.7.3", s.Status.Version)
			require.NotZero(t, s.Status.Leader)
		}
		require.Equal(t, e.nodes, strings.Count(e.etcdctl("endpoint", "hashkv"), "\n")+1)
		members := e.etcdctl("member", "list")
		require.Equal(t, e.nodes, strings.Count(members, "started"), members)
		for _, s := range e.Servers {
			require.Contains(t, members, s.ClientURL)
			require.Contains(t, members, s.PeerURL)
		}
		require.Empty(t, e.etcdctl("alarm", "list"))
		e.etcdctl("defrag")
		rev := e.put(e.key("a", 0), "v")
		require.Contains(t, e.etcdctl("compact", fmt.Sprint(rev)), "compacted revision")
		out, err := e.tryEtcdctl("", "compact", fmt.Sprint(rev))
		require.Error(t, err)
		require.Contains(t, out, "required revision has been compacted")
	})
}

func TestEtcdctlLock(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		require.Contains(t, e.etcdctl("lock", e.root+"lock", "echo", "held"), "held")
	})
}

// etcdctl prints JSON as the gateway does; the values survive base64.
func TestEtcdctlJSON(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		rev := e.put(k, "\x00\xff binary")
		var got struct {
			Header struct {
				Revision int64 `json:"revision"`
			} `json:"header"`
			Kvs []struct {
				Key   string `json:"key"`
				Value string `json:"value"`
				Mod   int64  `json:"mod_revision"`
			} `json:"kvs"`
			Count int64 `json:"count"`
		}
		require.NoError(t, json.Unmarshal([]byte(e.etcdctl("get", k, "-w", "json")), &got))
		require.EqualValues(t, 1, got.Count)
		require.Equal(t, rev, got.Kvs[0].Mod)
		require.GreaterOrEqual(t, got.Header.Revision, rev)
		value, err := base64.StdEncoding.DecodeString(got.Kvs[0].Value)
		require.NoError(t, err)
		require.Equal(t, "\x00\xff binary", string(value))
	})
}
