package compat

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// notShown are the metrics of etcd's that stoa doesn't have, each with its reason.
var notShown = map[string]string{
	"etcd_debugging_mvcc_pending_events_total":        "events that wait aren't counted; etcd_debugging_mvcc_slow_watcher_total tells of watchers that lag",
	"etcd_debugging_snap_save_marshalling_duration_*": "nothing is marshalled for a snapshot: it is the state file",
	"etcd_debugging_snap_save_total_duration_*":       "etcd's snapshots of its v2 store",
	"etcd_snap_fsync_duration_seconds":                "etcd's snapshots of its v2 store",
	"etcd_snap_db_fsync_duration_seconds":             "part of etcd_snap_db_save_total_duration_seconds",
	"etcd_debugging_store_*":                          "etcd's v2 store",
	"etcd_grpc_proxy_*":                               "of etcd's proxy, which its binary registers in the server, too",
	"etcd_debugging_server_watch_send_loop_*":         "etcd's send loops",
}

// Dashboards and alerts that were made for etcd find its metrics: each family with its
// type, labels and buckets, after the same requests to both servers.
func TestMetricsAreEtcds(t *testing.T) {
	if !underTest(t).Stoa {
		t.Skip("compares stoa with etcd")
	}
	etcd, err := process.Choose("etcd")
	require.NoError(t, err)
	want := families(t, process.Spec{Binary: etcd, Nodes: 3, Args: []string{"--metrics=extensive"}})
	got := families(t, process.Spec{Nodes: 3, Args: []string{"--metrics=extensive"}})
	for _, name := range slices.Sorted(keys(want)) {
		if excepted(name) {
			require.Nil(t, got[name], "%s is there, and said not to be", name)
			continue
		}
		if got[name] == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		compareFamilies(t, name, want[name], got[name])
	}
	for pattern := range notShown {
		require.True(t, slices.ContainsFunc(slices.Collect(keys(want)), func(n string) bool { return matches(pattern, n) }), "%s is not etcd's", pattern)
	}
}

func keys(m map[string]*dto.MetricFamily) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func matches(pattern, name string) bool {
	prefix, tree := strings.CutSuffix(pattern, "*")
	return pattern == name || tree && strings.HasPrefix(name, prefix)
}

func excepted(name string) bool {
	for pattern := range notShown {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

func compareFamilies(t *testing.T, name string, want, got *dto.MetricFamily) {
	t.Helper()
	if want.GetType() != got.GetType() {
		t.Errorf("%s is a %v, and a %v in etcd", name, got.GetType(), want.GetType())
		return
	}
	if len(want.Metric) == 0 || len(got.Metric) == 0 {
		return
	}
	if w, g := labels(want.Metric[0]), labels(got.Metric[0]); w != g {
		t.Errorf("%s has the labels %s, and %s in etcd", name, g, w)
	}
	if w, g := bounds(want.Metric[0]), bounds(got.Metric[0]); w != g {
		t.Errorf("%s has the buckets %s, and %s in etcd", name, g, w)
	}
	// The values of a label, where they don't name servers.
	for _, label := range []string{"type", "op", "grpc_type", "grpc_code", "name", "stage", "version"} {
		g := values(got, label)
		for _, v := range values(want, label) {
			if strings.HasPrefix(name, "grpc_server") && label != "grpc_code" || strings.HasPrefix(name, "etcd_server_health") || etcdsOwn[v] {
				continue
			}
			if !slices.Contains(g, v) {
				t.Errorf("%s: etcd has a series with %s=%q, stoa has %q", name, label, v, g)
			}
		}
	}
}

// etcdsOwn are requests that etcd makes to itself.
var etcdsOwn = map[string]bool{"ClusterVersionSet": true, "ClusterMemberAttrSet": true}

func labels(m *dto.Metric) string {
	var names []string
	for _, l := range m.Label {
		names = append(names, l.GetName())
	}
	sort.Strings(names)
	return fmt.Sprint(names)
}

func bounds(m *dto.Metric) string {
	var le []float64
	for _, b := range m.GetHistogram().GetBucket() {
		le = append(le, b.GetUpperBound())
	}
	return fmt.Sprint(le)
}

func values(f *dto.MetricFamily, label string) (all []string) {
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if l.GetName() == label && !slices.Contains(all, l.GetValue()) {
				all = append(all, l.GetValue())
			}
		}
	}
	return all
}

// families is the page of a server after requests of every kind.
func families(t *testing.T, spec process.Spec) map[string]*dto.MetricFamily {
	t.Helper()
	c := process.StartT(t, spec)
	s := c.Servers[0]
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	ctx := t.Context()
	must := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	watch := cli.Watch(ctx, "/m/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	for i := range 20 {
		must(cli.Put(ctx, fmt.Sprintf("/m/%d", i), "v"))
	}
	must(cli.Get(ctx, "/m/1"))
	must(cli.Get(ctx, "/m/", clientv3.WithPrefix(), clientv3.WithSerializable()))
	_, err = cli.Get(ctx, "/m/1", clientv3.WithRev(1000))
	require.Error(t, err)
	must(cli.Delete(ctx, "/m/2"))
	must(cli.Txn(ctx).Then(clientv3.OpPut("/m/3", "w")).Commit())
	must(cli.Txn(ctx).Then(clientv3.OpGet("/m/3")).Commit())
	lease, err := cli.Grant(ctx, 100)
	require.NoError(t, err)
	must(cli.KeepAliveOnce(ctx, lease.ID))
	must(cli.Revoke(ctx, lease.ID))
	_, err = cli.Put(ctx, "/m/4", "v", clientv3.WithLease(99))
	require.Error(t, err)
	must(cli.Compact(ctx, 10, clientv3.WithCompactPhysical()))
	must(cli.HashKV(ctx, s.ClientURL, 0))
	must(cli.Defragment(ctx, s.ClientURL))
	snap, err := cli.Snapshot(ctx)
	require.NoError(t, err)
	must(io.Copy(io.Discard, snap))
	require.NoError(t, snap.Close())

	resp, err := http.Get(s.ClientURL + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	return all
}
