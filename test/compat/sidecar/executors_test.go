package sidecar

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// TestComposedExecutors: sidecars keep mirrors up to date and carry out commands, one of them at a time,
// and their metrics tell how far these are.
func TestComposedExecutors(t *testing.T) {
	t.Parallel()
	etcd, err := process.Choose("etcd")
	require.NoError(t, err)
	ours, theirs := process.StartT(t, process.Spec{Partitions: 2}), process.StartT(t, process.Spec{Binary: etcd})
	file := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
clusters:
  ours: { endpoints: [%q] }
  theirs: { endpoints: [%q] }
routes:
- { prefix: /s/, cluster: ours, mirrors: [theirs] }
- { prefix: /e/, cluster: theirs }
`, ours.Servers[0].ClientURL, theirs.Servers[0].ClientURL), 0o600))
	begin := func(name string) *process.Server {
		s, err := ours.SidecarOf(file, name, "--run-mirrors=*", "--run-commands=*")
		require.NoError(t, err)
		return kept(t, name, s)
	}
	first := begin("first")
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"ours": {Endpoints: ours.Endpoints()}, "theirs": {Endpoints: theirs.Endpoints()}},
		Routes:   []compose.Route{{Prefix: "/s/", Cluster: "ours", Mirrors: []string{"theirs"}}, {Prefix: "/e/", Cluster: "theirs"}},
		Local:    "theirs",
	})
	require.NoError(t, err)
	defer c.Close()
	q, err := c.Commands()
	require.NoError(t, err)
	works := func(n string, by *process.Server) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		require.NoError(t, q.Send(clientv3.OpPut("/s/command", n), clientv3.OpPut("/e/command", n)).Done(ctx))
		require.Eventually(t, func() bool {
			st, err := c.MirrorStatus(ctx)
			return err == nil && st[0].Usable && st[0].Behind == 0
		}, limit, 20*time.Millisecond)
		for _, key := range []string{"/s/command", "/e/command"} {
			got, err := c.Get(ctx, key)
			require.NoError(t, err)
			require.Equal(t, n, string(got.Kvs[0].Value))
		}
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			text := metricsOf(by)
			for _, line := range []string{
				`stoa_mirror_elected{home="ours",prefix="/s/",target="theirs"} 1`,
				`stoa_mirror_behind_revisions{home="ours",prefix="/s/",target="theirs"} 0`,
				`stoa_commands_elected{set="ours,theirs"} 1`,
				`stoa_commands_waiting_batches{set="ours,theirs"} 0`,
				`stoa_commands_clients{set="ours,theirs"} 1`,
				`stoa_commands_lag_seconds{cluster="theirs",set="ours,theirs"} 0`,
				`stoa_commands_carried_total{cluster="ours",set="ours,theirs"} 1`,
				`stoa_commands_carried_total{cluster="theirs",set="ours,theirs"} 1`,
				`stoa_commands_failures_total{cluster="theirs",set="ours,theirs"} 0`,
			} {
				require.Contains(t, text, line)
			}
		}, limit, 100*time.Millisecond)
	}
	works("1", first)

	second := begin("second")
	require.Eventually(t, func() bool {
		return strings.Contains(metricsOf(second), `stoa_commands_elected{set="ours,theirs"} 0`)
	}, limit, 100*time.Millisecond)
	code, _, err := first.Stop()
	require.NoError(t, err)
	require.Zero(t, code)
	works("2", second)

	bad, err := ours.SidecarOf(file, "bad", "--run-mirrors=mars")
	require.NoError(t, err)
	require.NoError(t, bad.Start())
	code, err = bad.Wait(limit)
	require.NoError(t, err)
	require.NotZero(t, code)
	require.Contains(t, bad.LogTail(2000), `there is no cluster \"mars\"`)
}

func metricsOf(s *process.Server) string { return page(s.ClientURL + "/metrics") }
