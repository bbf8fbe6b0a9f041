package adversary

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is what is reachable over HTTP without gRPC.
type page struct {
	method, path, body string
	onPeerPort         bool
	open               bool // etcd tells it everybody, without authentication: it may differ
}

// pages are all of them. Those of a gateway belong here, too.
var pages = []page{
	{method: "GET", path: "/"},
	{method: "GET", path: "/health"}, {method: "GET", path: "/health?serializable=true&exclude=NOSPACE"}, {method: "GET", path: "/health?exclude=%00"},
	{method: "GET", path: "/livez?verbose"}, {method: "GET", path: "/readyz?verbose&exclude=x"}, {method: "GET", path: "/readyz/data_corruption"},
	{method: "GET", path: "/version"},
	{method: "GET", path: "/metrics", open: true},
	{method: "GET", path: "/debug/vars", open: true}, {method: "GET", path: "/debug/pprof/"}, {method: "GET", path: "/debug/pprof/heap"},
	{method: "POST", path: "/v3/kv/range", body: `{"key":"AA==","range_end":"AA=="}`}, {method: "GET", path: "/v2/keys/"},
	{method: "GET", path: "/members", onPeerPort: true, open: true}, {method: "GET", path: "/version", onPeerPort: true},
	{method: "GET", path: "/raft/probing", onPeerPort: true}, {method: "POST", path: "/raft", body: "\x00\x01", onPeerPort: true},
	{method: "POST", path: "/raft/snapshot", body: "\x00", onPeerPort: true}, {method: "GET", path: "/lease/internal", onPeerPort: true},
	{method: "POST", path: "/members/promote/1", onPeerPort: true}, {method: "GET", path: "/hashkv", onPeerPort: true},
	{method: "GET", path: "/downgrade/enabled", onPeerPort: true}, {method: "GET", path: "/metrics", onPeerPort: true},
}

// TestPagesTellNothing compares the pages of the twins, which need no authentication.
func TestPagesTellNothing(t *testing.T) {
	t.Parallel()
	twins := newTwins(t)
	var before [2]string
	for i, w := range twins {
		before[i] = w.state()
	}
	for _, p := range pages {
		var told [2]string
		for i, w := range twins {
			told[i] = p.get(t, w)
			require.False(t, leaks(told[i]), "%+v: %s", p, told[i])
		}
		if !p.open {
			require.Equal(t, told[0], told[1], "%+v", p)
		}
	}
	for i, w := range twins {
		w.healthy()
		require.Equal(t, before[i], w.state(), "nothing may have changed")
	}
}

func (p *page) get(t *testing.T, w *twin) string {
	url := w.server.ClientURL
	if p.onPeerPort {
		url = w.server.PeerURL
	}
	r, err := http.NewRequestWithContext(t.Context(), p.method, url+p.path, strings.NewReader(p.body))
	require.NoError(t, err)
	r.Header.Set("Authorization", w.token)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return fmt.Sprint(resp.StatusCode, " ", string(text))
}
