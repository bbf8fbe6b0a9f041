package metrics

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
)

func page(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, _ := io.ReadAll(w.Result().Body)
	return string(b)
}

func TestPage(t *testing.T) {
	m := New()
	m.Watch(func() State {
		return State{ServerID: 0xab, HasLeader: true, Revision: 9, Sessions: 3, BackendBytes: 4096, Counts: Counts{Puts: 1}, Partitions: []Partition{
			{IsLeader: true, Committed: 3, Applied: 2, Closed: 8}, {Committed: 4, Applied: 4, Bytes: 77, Load: 0.25, Worked: 1500 * time.Millisecond},
		}}
	})
	m.Traffic(func() uint64 { return 5 }, func() uint64 { return 7 })
	m.HealthChecked("health", "", true)
	m.HealthChecked("readyz", "linearizable_read", false)
	text := page(m)
	for _, want := range []string{
		`etcd_server_has_leader 1`, `etcd_server_is_leader 0`, `etcd_server_id{server_id="ab"} 1`,
		`etcd_server_proposals_committed_total 7`, `etcd_server_proposals_applied_total 6`,
		`etcd_debugging_mvcc_current_revision 9`, `etcd_mvcc_db_total_size_in_bytes 4096`, `etcd_mvcc_put_total 1`, `stoa_sessions 3`,
		`stoa_partition_closed_revision{partition="0"} 8`, `stoa_partition_is_leader{partition="1"} 0`,
		`stoa_partition_bytes{partition="1"} 77`, `stoa_partition_load{partition="1"} 0.25`, `stoa_partition_loop_seconds_total{partition="1"} 1.5`,
		`etcd_server_version{server_version="3.7.3"} 1`, `etcd_cluster_version{cluster_version="3.7"} 1`,
		`etcd_network_client_grpc_received_bytes_total 5`, `etcd_network_client_grpc_sent_bytes_total 7`,
		`etcd_server_health_success 1`, `etcd_server_healthchecks_total{name="linearizable_read",status="error",type="readyz"} 1`,
		`etcd_disk_wal_fsync_duration_seconds_count 0`, `etcd_disk_backend_commit_duration_seconds_count 0`,
		`os_fd_limit `, `go_goroutines `, `process_cpu_seconds_total `,
	} {
		require.Contains(t, text, "\n"+want)
	}
}

func TestTwoServersInOneProcess(t *testing.T) {
	a, b := New(), New()
	a.HealthChecked("health", "", true)
	require.Contains(t, page(a), "\netcd_server_health_success 1")
	require.Contains(t, page(b), "\netcd_server_health_success 0")
}

func TestNamesAndHelpAreWellFormed(t *testing.T) {
	m := New()
	m.Watch(func() State { return State{Partitions: make([]Partition, 2)} })
	m.Extensions.Watch(func() map[string]bool { return map[string]bool{"x": false} })
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		// etcd's own names aren't ours to mend.
		require.False(t, strings.HasPrefix(p.Metric, "stoa_"), "%s: %s", p.Metric, p.Text)
	}
}

func TestExtensionsHaveSeriesWhileTheyAreRegistered(t *testing.T) {
	m := New()
	m.Extensions.Called("early", time.Second, 1, 1, "")
	require.NotContains(t, page(m), "stoa_extension")
	registered := map[string]bool{"counter": false, "queue": true}
	m.Extensions.Watch(func() map[string]bool { return registered })
	m.Extensions.Called("counter", 2*time.Microsecond, 40, 2, "")
	m.Extensions.Called("counter", 2*time.Microsecond, 2, 0, "limit")
	text := page(m)
	for _, want := range []string{
		`stoa_extension_registered{extension="counter"} 1`, `stoa_extension_registered{extension="queue"} 1`,
		`stoa_extension_disabled{extension="counter"} 0`, `stoa_extension_disabled{extension="queue"} 1`,
		`stoa_extension_calls_total{extension="counter"} 2`, `stoa_extension_calls_total{extension="queue"} 0`,
		`stoa_extension_steps_total{extension="counter"} 42`, `stoa_extension_writes_total{extension="counter"} 2`,
		`stoa_extension_errors_total{extension="counter",reason="limit"} 1`, `stoa_extension_errors_total{extension="counter",reason="space"} 0`,
		`stoa_extension_duration_seconds_bucket{extension="counter",le="4e-06"} 2`,
		`stoa_extension_duration_seconds_count{extension="counter"} 2`,
	} {
		require.Contains(t, text, "\n"+want)
	}
	require.NotContains(t, text, "early")

	delete(registered, "counter")
	require.NotContains(t, page(m), "counter\"")
	registered["counter"] = false
	require.Contains(t, page(m), "\n"+`stoa_extension_calls_total{extension="counter"} 0`)
}

func TestExtensionsThatNobodyLooksAtAreBounded(t *testing.T) {
	m := New()
	for i := range 3 * maxUnseen {
		m.Extensions.Called(fmt.Sprint("e", i), 0, 1, 0, "")
	}
	require.LessOrEqual(t, len(m.Extensions.series), maxUnseen)
}

func BenchmarkExtensionCalled(b *testing.B) {
	m := New()
	for b.Loop() {
		m.Extensions.Called("counter", 2*time.Microsecond, 40, 2, "")
	}
}
