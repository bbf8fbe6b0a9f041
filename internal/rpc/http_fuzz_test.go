package rpc

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/gateway"
	ports "github.com/stoa-kv/stoa/internal/serve"
)

// healthy is the rest of what the pages show.
type healthy struct{}

func (healthy) Alarms() []*pb.AlarmMember         { return nil }
func (healthy) HasLeader() bool                   { return true }
func (healthy) IsLearner() bool                   { return false }
func (healthy) Read(context.Context, bool) error  { return nil }
func (healthy) HealthChecked(_, _ string, _ bool) {}

// clientPages is all that HTTP reaches on a client port, with the services behind the
// gateway, in front of a fake node.
func clientPages(t testing.TB) http.Handler {
	_, conn := serve(t, Options{})
	g, err := gateway.New(conn, 64<<10)
	require.NoError(t, err)
	return ports.ClientPages(ports.Pages{
		Health: healthy{}, HealthCounter: healthy{}, HealthTimeout: time.Second, Metrics: http.NotFoundHandler(),
		Version: func() string { return "" }, Gateway: g, NamesCount: func() bool { return true },
		Hosts: []string{"h"}, Origins: []string{"http://o"}, Logger: zap.NewNop(),
	})
}

// FuzzHTTP sends requests as they are on the wire to whatever HTTP reaches before any
// check of rights. Each must get one answer, with an HTTP status, in time.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", "GET /readyz?verbose&exclude=x HTTP/1.1\r\nHost: h:1\r\n\r\n", "GET /version HTTP/1.0\r\n\r\n",
		"OPTIONS /v3/kv/range HTTP/1.1\r\nHost: h\r\nOrigin: http://o\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	for path, body := range map[string]string{
		"kv/range": `{"key":"YQ==","sort_order":"DESCEND","limit":"1"}`, "kv/put": `{"key":"YQ==","value":"YQ==","lease":"-1"}`,
		"kv/txn":    `{"compare":[{"target":1,"key":"YQ==","create_revision":"0"}],"success":[{"request_txn":{"success":[{"request_put":{"key":"YQ=="}}]}}]}`,
		"watch":     `{"create_request":{"key":"YQ==","range_end":"AA==","filters":[0]}}{"cancel_request":{"watch_id":"1"}}{"progress_request":{}}`,
		"lock/lock": `{"name":"YQ==","lease":"7"}`, "election/campaign": `{"name":"YQ==","value":"YQ=="}`, "election/proclaim": `{"leader":{"key":"YQ==","rev":"1"}}`,
		"lease/keepalive": `{"ID":"7"}`, "auth/authenticate": `{"name":"u","password":"p"}`, "cluster/member/add": `{"peerURLs":["http://h:1"],"isLearner":true}`,
		"maintenance/alarm": `{"action":"GET","memberID":"1","alarm":"NOSPACE"}`, "election/observe": `{"name":"YQ=="}`, "maintenance/snapshot": `{}`,
	} {
		f.Add([]byte("POST /v3/" + path + " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\nGrpc-Metadata-X-Bin: AA==\r\nGrpc-Timeout: 1S\r\nContent-Length: " +
			strconv.Itoa(len(body)) + "\r\n\r\n" + body))
	}
	h := clientPages(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		// A caller that waits, for a lock or for events, is one that leaves.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(w, r.WithContext(ctx))
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
		if w.Code < 200 || w.Code > 599 {
			t.Fatalf("status %d", w.Code)
		}
	})
}
