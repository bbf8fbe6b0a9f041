package compat

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (e *env) httpGet(url string) (code int, body string) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.ctx, http.MethodGet, url, nil)
	require.NoError(e.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(e.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(e.t, err)
	return resp.StatusCode, string(text)
}

// gRPC and plain HTTP share the client port.
func TestHTTPOnTheClientPort(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		for _, s := range e.Servers {
			code, body := e.httpGet(s.ClientURL + "/health")
			require.Equal(t, http.StatusOK, code)
			require.JSONEq(t, `{"health":"true","reason":""}`, body)
			code, body = e.httpGet(s.ClientURL + "/health?serializable=true")
			require.Equal(t, http.StatusOK, code, body)
			for _, path := range []string{"/livez", "/readyz"} {
				code, body = e.httpGet(s.ClientURL + path)
				require.Equal(t, http.StatusOK, code, "%s: %s", path, body)
				require.Equal(t, "ok\n", body, path)
			}
			code, body = e.httpGet(s.ClientURL + "/version")
			require.Equal(t, http.StatusOK, code)
			var v struct{ EtcdServer, EtcdCluster string }
			require.NoError(t, json.Unmarshal([]byte(body), &v))
			require.Equal(t, "3.7.3", v.EtcdServer)
			require.Equal(t, "3.7.0", v.EtcdCluster)
			code, _ = e.httpGet(s.ClientURL + "/no/such/page")
			require.Equal(t, http.StatusNotFound, code)
		}
	})
}

func TestMetrics(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		e.put(e.key("a", 0), "v")
		for _, s := range e.Servers {
			code, body := e.httpGet(s.ClientURL + "/metrics")
			require.Equal(t, http.StatusOK, code)
			for _, name := range []string{
				"etcd_server_has_leader 1",
				"etcd_server_is_leader ",
				"etcd_server_leader_changes_seen_total ",
				"etcd_server_proposals_committed_total ",
				"etcd_server_proposals_applied_total ",
				"etcd_server_proposals_pending ",
				"etcd_mvcc_db_total_size_in_bytes ",
				"etcd_mvcc_db_total_size_in_use_in_bytes ",
				"etcd_debugging_mvcc_current_revision ",
				"etcd_debugging_mvcc_compact_revision ",
				"etcd_debugging_mvcc_keys_total ",
				"etcd_debugging_mvcc_watcher_total ",
				"etcd_disk_wal_fsync_duration_seconds_count ",
				"etcd_disk_backend_commit_duration_seconds_count ",
				"process_resident_memory_bytes ",
				"go_goroutines ",
			} {
				require.Contains(t, body, "\n"+name)
			}
		}
	})
}

func TestHealthWithoutQuorum(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		require.NoError(t, e.Servers[1].Kill())
		require.NoError(t, e.Servers[2].Kill())
		require.Eventually(t, func() bool {
			code, _ := e.httpGet(e.Servers[0].ClientURL + "/health")
			return code == http.StatusServiceUnavailable
		}, 20*time.Second, 200*time.Millisecond)
		code, body := e.httpGet(e.Servers[0].ClientURL + "/livez")
		require.Equal(t, http.StatusOK, code, body)
	})
}
