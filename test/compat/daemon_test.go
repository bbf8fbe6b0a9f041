package compat

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

func underTest(t *testing.T) process.Binary {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	return bin
}

func TestVersionFlag(t *testing.T) {
	bin := underTest(t)
	out, err := exec.Command(bin.Path, "--version").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, "\n"+string(out), "\netcd Version: 3.7.3\n")
	if bin.Stoa {
		require.True(t, strings.HasPrefix(string(out), "stoa Version: "))
	}
	out, err = exec.Command(bin.Path, "--help").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--listen-client-urls")
}

// Each refusal names the flag or file that it refuses.
func TestRefusesToStart(t *testing.T) {
	unwritable := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(unwritable, []byte("not a directory"), 0o600))
	for name, tc := range map[string]struct{ args, names []string }{
		"unknown flag":         {[]string{"--no-such-flag=1"}, []string{"no-such-flag"}},
		"bad number":           {[]string{"--heartbeat-interval=soon"}, []string{"heartbeat-interval", "soon"}},
		"bad URL":              {[]string{"--listen-client-urls=127.0.0.1"}, []string{"127.0.0.1"}},
		"election too short":   {[]string{"--heartbeat-interval=1000", "--election-timeout=1000"}, []string{"election-timeout"}},
		"not in the cluster":   {[]string{"--initial-cluster=other=http://127.0.0.1:1"}, []string{"s1"}},
		"bad cluster state":    {[]string{"--initial-cluster-state=odd"}, []string{"odd"}},
		"data dir is a file":   {[]string{"--data-dir=" + unwritable}, []string{unwritable}},
		"bad compaction mode":  {[]string{"--auto-compaction-mode=often", "--auto-compaction-retention=1"}, []string{"often"}},
		"missing config file":  {[]string{"--config-file=/no/such/file"}, []string{"/no/such/file"}},
		"an argument too many": {[]string{"what"}, []string{"what"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := process.NewT(t, process.Spec{Args: tc.args})
			s := c.Servers[0]
			require.NoError(t, s.Start())
			code, err := s.Wait(10 * time.Second)
			require.NoError(t, err)
			require.NotZero(t, code)
			log, err := os.ReadFile(s.LogFile)
			require.NoError(t, err)
			_, said, _ := strings.Cut(string(log), "\n") // behind the command line that we noted
			for _, n := range tc.names {
				require.Contains(t, said, n)
			}
		})
	}
}

// Each way of giving a setting: --flag=v, --flag v, a repeated flag, a flag that
// stoa has no use for, the environment (also unknown variables), a file.
func TestWaysToConfigure(t *testing.T) {
	t.Run("flags", func(t *testing.T) {
		c := process.StartT(t, process.Spec{
			Args: []string{"--max-txn-ops", "5", "--max-txn-ops=7", "--strict-reconfig-check=false", "--log-level", "info",
				"--logger=zap", "--enable-pprof", "--backend-batch-limit=100"},
			Env: []string{"ETCD_NO_SUCH_THING=1", "ETCD_VERIFY=all", "ETCD_UNSUPPORTED_ARCH=amd64"},
		})
		requireTxnOps(t, c.Servers[0].ClientURL, 7)
	})
	t.Run("environment", func(t *testing.T) {
		c := process.StartT(t, process.Spec{Env: []string{"ETCD_MAX_TXN_OPS=3"}})
		requireTxnOps(t, c.Servers[0].ClientURL, 3)
	})
	t.Run("file", func(t *testing.T) {
		plan := process.NewT(t, process.Spec{})
		s := plan.Servers[0]
		file := filepath.Join(t.TempDir(), "etcd.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
			"name: s1\ndata-dir: %s\nlisten-client-urls: %s\nadvertise-client-urls: %s\nlisten-peer-urls: %s\n"+
				"initial-advertise-peer-urls: %s\ninitial-cluster: s1=%s\nmax-txn-ops: 6\nheartbeat-interval: 50\nelection-timeout: 500\n",
			s.DataDir, s.ClientURL, s.ClientURL, s.PeerURL, s.PeerURL, s.PeerURL), 0o600))
		cmd := exec.Command(underTest(t).Path, "--config-file="+file)
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		require.Eventually(t, func() bool { return strings.Contains(out.String(), process.ReadyLine) },
			20*time.Second, 20*time.Millisecond, "%s", &out)
		requireTxnOps(t, s.ClientURL, 6)
	})
	t.Run("unix socket", func(t *testing.T) {
		sock := filepath.Join(t.TempDir(), "client.sock")
		process.StartT(t, process.Spec{Args: []string{"--listen-client-urls=unix://" + sock, "--advertise-client-urls=unix://" + sock}})
		requireTxnOps(t, "unix://"+sock, 128)
	})
	t.Run("metrics port", func(t *testing.T) {
		plan := process.NewT(t, process.Spec{}) // for a port of its own
		url := plan.Servers[0].ClientURL
		process.StartT(t, process.Spec{Args: []string{"--listen-metrics-urls=" + url}})
		resp, err := http.Get(url + "/metrics")
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	})
}

// requireTxnOps shows which --max-txn-ops a server took.
func requireTxnOps(t *testing.T, endpoint string, most int) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	var ops []clientv3.Op
	for i := range most + 1 {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("/conf/", i), "v"))
	}
	_, err = cli.Txn(t.Context()).Then(ops...).Commit()
	require.ErrorContains(t, err, "too many operations")
	_, err = cli.Txn(t.Context()).Then(ops[:most]...).Commit()
	require.NoError(t, err)
}

func TestANewStoreIsSmallAndAtRevisionOne(t *testing.T) {
	// Thirteen pages are the quota that etcd's own tests give.
	own(t, 1, []string{fmt.Sprintf("--quota-backend-bytes=%d", 13*os.Getpagesize())}, func(t *testing.T, e *env) {
		got := e.get("nothing")
		require.EqualValues(t, 1, got.Header.Revision)
		st, err := e.cli.Status(e.ctx, e.Servers[0].ClientURL)
		require.NoError(t, err)
		require.LessOrEqual(t, st.DbSizeInUse, int64(13*os.Getpagesize()))
		require.EqualValues(t, 2, e.put("/a/b/c", "first"))
		require.EqualValues(t, 3, e.put("/d/e/f", "second"))
	})
}

func TestTerminatesQuickly(t *testing.T) {
	own(t, 1, nil, func(t *testing.T, e *env) {
		e.fill(2)
		watch := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		require.True(t, next(t, watch).Created)
		code, took, err := e.Servers[e.leader()].Stop()
		require.NoError(t, err)
		t.Logf("the leader ended after %v", took)
		if underTest(t).Stoa { // etcd waits for its clients, and ends by the signal
			require.Zero(t, code)
			require.Less(t, took, 1500*time.Millisecond)
		}
		if e.nodes == 1 {
			return
		}
		// Leadership was handed over, so the others go on at once.
		start := time.Now()
		var urls []string
		for _, s := range e.Servers {
			if s.Running() {
				urls = append(urls, s.ClientURL)
			}
		}
		_, err = e.client(urls...).Put(e.ctx, e.key("a", 0), "after")
		require.NoError(t, err)
		t.Logf("first write after the leader's end: %v", time.Since(start))
		require.Less(t, time.Since(start), 2*time.Second)
	})
}
