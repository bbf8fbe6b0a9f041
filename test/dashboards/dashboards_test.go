package dashboards

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/recipes"
	"github.com/stoa-kv/stoa/test/process"
)

// Each alert's story in stoa.test.yml comes true.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "../../deploy/prometheus/stoa.rules.yml")
	promtool(t, "test", "rules", "../../deploy/prometheus/stoa.test.yml")
}

// Prometheus takes the settings that docs/operations.md shows.
func TestDocumentedSettings(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "\n## Alerts\n")
	require.True(t, ok)
	_, after, ok = strings.Cut(after, "```yaml\n")
	require.True(t, ok)
	settings, _, _ := strings.Cut(after, "```")
	rules, err := os.ReadFile("../../deploy/prometheus/stoa.rules.yml")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stoa.rules.yml"), rules, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(settings), 0o600))
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yml"))
}

// One cluster goes from load to a full quota, to a member down, to no quorum. It shows all metrics
// on the way, and at each station those alerts fire that should, and no others.
func TestCluster(t *testing.T) {
	stoa, etcd := ours(t), mixin(t)
	dir := t.TempDir()
	bin, err := process.Choose("../../bin/stoa")
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Binary: bin, Nodes: 3, Partitions: 2, Timeout: 2 * time.Minute,
		Args: []string{"--metrics=extensive", "--quota-backend-bytes=33554432"}, Env: []string{"STOA_AUDIT_LOG=" + filepath.Join(dir, "audit")}})
	load(t, c)
	between := throughSidecar(t, c)
	quiet := settled(t, c)
	fill(t, c)
	full := settled(t, c)
	for _, s := range []*source{stoa, etcd} {
		for name, in := range s.metrics(t) {
			assert.True(t, full.has(name) || between.has(name), "%s is not exported; it is in %s", name, in)
		}
	}

	require.NoError(t, c.Servers[2].Kill())
	down := scrape(t, c)
	require.NoError(t, c.Servers[1].Kill())
	var alone samples
	require.Eventually(t, func() bool {
		alone = scrape(t, c)
		return alone.value("etcd_server_has_leader", c.Servers[0]) == 0
	}, time.Minute, 100*time.Millisecond)

	space := []string{"StoaAlarm", "StoaSpaceLow", "etcdDatabaseQuotaLowSpace", "etcdExcessiveDatabaseGrowth"}
	for _, at := range []struct {
		name   string
		shows  samples
		alerts []string
	}{
		{"after load", quiet, nil},
		{"a full quota", full, space},
		{"a member down", down, append([]string{"StoaMemberDown", "etcdMembersDown"}, space...)},
		{"no quorum", alone, append([]string{"StoaMemberDown", "StoaNoLeader", "StoaNoQuorum", "etcdInsufficientMembers", "etcdMembersDown", "etcdNoLeader"}, space...)},
	} {
		t.Run(at.name, func(t *testing.T) { fires(t, []*source{stoa, etcd}, at.shows, at.alerts) })
	}
}

// load makes every kind of request, as root: quotas are counted while authentication is enabled.
func load(t *testing.T, c *process.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cli, err := client.New(client.Config{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	defer func() { _ = cli.Close() }()
	_, err = cli.UserAdd(ctx, "root", "root")
	require.NoError(t, err)
	_, err = cli.RoleAdd(ctx, "root")
	require.NoError(t, err)
	_, err = cli.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = cli.AuthEnable(ctx)
	require.NoError(t, err)
	stoactl, err := filepath.Abs("../../bin/stoactl")
	require.NoError(t, err)
	// A new cluster has quotas once its version has risen.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		out, err := exec.CommandContext(ctx, stoactl, "--endpoints", c.Servers[0].ClientURL, "--user", "root:root", "quota", "set", "--prefix", "/load/",
			"--max-keys", "1000", "--max-bytes", "100000", "--max-watchers", "100", "--max-rate", "10000").CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}, time.Minute, 100*time.Millisecond)
	root, err := client.New(client.Config{Endpoints: c.Endpoints(), Username: "root", Password: "root"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	request(ctx, t, root)
}

func request(ctx context.Context, t *testing.T, cli *client.Client) {
	t.Helper()
	require.NoError(t, recipes.Register(ctx, cli, "counter"))
	lease, err := cli.Grant(ctx, 600)
	require.NoError(t, err)
	_, err = cli.KeepAliveOnce(ctx, lease.ID)
	require.NoError(t, err)
	watch := cli.Watch(ctx, "/load/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	s, err := cli.Session(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	for range 20 {
		_, err = cli.Put(ctx, "/load/a", "1", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		_, err = cli.Get(ctx, "/load/a")
		require.NoError(t, err)
		_, err = cli.Put(ctx, "/ctr-increment/a", "1")
		require.NoError(t, err)
		_, err = s.Put(ctx, "/load/b", "2")
		require.NoError(t, err)
	}
	_, err = cli.Put(ctx, "/ctr-increment/a", "not a number")
	require.Error(t, err)
	_, err = cli.Delete(ctx, "/load/a")
	require.NoError(t, err)
}

// throughSidecar makes some requests through a sidecar, and is what that shows.
func throughSidecar(t *testing.T, c *process.Cluster) samples {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := c.Sidecar("sidecar", "--user=root:root", "--cache=/load/")
	require.NoError(t, err)
	require.NoError(t, s.Start())
	defer func() { _ = s.Kill() }()
	require.NoError(t, s.WaitReady(ctx))
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	require.EventuallyWithT(t, func(t *assert.CollectT) { // its user is authenticated in the background
		_, err := cli.Put(ctx, "/load/sidecar", "1")
		assert.NoError(t, err)
	}, time.Minute, 10*time.Millisecond)
	resp, err := http.Get(s.ClientURL + "/readyz")
	require.NoError(t, err)
	resp.Body.Close()
	return samplesOf(t, s)
}

// fill puts values until the quota is reached.
func fill(t *testing.T, c *process.Cluster) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 10 * time.Second, Username: "root", Password: "root", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	value := string(make([]byte, 1<<20))
	for range 100 {
		if _, err = cli.Put(t.Context(), "/fill", value); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "database space exceeded")
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../bin/promtool", args...).CombinedOutput()
	if err != nil && os.IsNotExist(err) {
		t.Fatal("there is no bin/promtool: run `make test-dashboards`")
	}
	require.NoError(t, err, "%s", out)
}
