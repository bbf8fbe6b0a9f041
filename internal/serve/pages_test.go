package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/version"
)

type fakeHealth struct {
	alarms            []*pb.AlarmMember
	noLeader, learner bool
	local, agreed     error
	checked           []string
}

func (f *fakeHealth) Alarms() []*pb.AlarmMember { return f.alarms }
func (f *fakeHealth) HasLeader() bool           { return !f.noLeader }
func (f *fakeHealth) IsLearner() bool           { return f.learner }
func (f *fakeHealth) Read(_ context.Context, serializable bool) error {
	if serializable {
		return f.local
	}
	return f.agreed
}
func (f *fakeHealth) HealthChecked(kind, name string, ok bool) {
	f.checked = append(f.checked, strings.TrimSuffix(kind+"/"+name, "/")+map[bool]string{true: "+", false: "-"}[ok])
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func pages(f *fakeHealth) Pages {
	return Pages{Health: f, HealthCounter: f, HealthTimeout: time.Second, Logger: zap.NewNop(),
		Version: fakeMembers{}.ClusterVersion,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("metrics")) })}
}

func TestHealthPages(t *testing.T) {
	noSpace := []*pb.AlarmMember{{Alarm: pb.AlarmType_NOSPACE}}
	corrupt := []*pb.AlarmMember{{Alarm: pb.AlarmType_CORRUPT}}
	lost := errors.New("etcdserver: leader changed")
	for _, tc := range []struct {
		server *fakeHealth
		path   string
		code   int
		body   string
	}{
		{&fakeHealth{}, "/health", 200, `{"health":"true","reason":""}`},
		{&fakeHealth{alarms: noSpace}, "/health", 503, `{"health":"false","reason":"ALARM NOSPACE"}` + "\n"},
		{&fakeHealth{alarms: noSpace}, "/health?exclude=NOSPACE", 200, `{"health":"true","reason":""}`},
		{&fakeHealth{alarms: corrupt}, "/health?exclude=NOSPACE", 503, `{"health":"false","reason":"ALARM CORRUPT"}` + "\n"},
		{&fakeHealth{noLeader: true}, "/health", 503, `{"health":"false","reason":"RAFT NO LEADER"}` + "\n"},
		{&fakeHealth{noLeader: true}, "/health?serializable=true", 200, `{"health":"true","reason":""}`},
		{&fakeHealth{agreed: lost}, "/health", 503, `{"health":"false","reason":"RANGE ERROR:etcdserver: leader changed"}` + "\n"},

		{&fakeHealth{agreed: lost}, "/livez", 200, "ok\n"},
		{&fakeHealth{}, "/livez?verbose", 200, "[+]serializable_read ok\nok\n"},
		{&fakeHealth{local: lost}, "/livez/serializable_read", 503, "[-]serializable_read failed: etcdserver: leader changed\n\n"},
		{&fakeHealth{}, "/readyz?verbose=true", 200, "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\nok\n"},
		{&fakeHealth{alarms: corrupt}, "/readyz", 503, "[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n\n"},
		{&fakeHealth{alarms: corrupt}, "/readyz?exclude=data_corruption&exclude=nonsense", 200, "ok\n"},
		{&fakeHealth{learner: true}, "/readyz/non_learner", 503, "[-]non_learner failed: not supported for learner\n\n"},
		{&fakeHealth{}, "/readyz/nonsense", 404, "404 page not found\n"},

		{&fakeHealth{}, "/metrics", 200, "metrics"},
		{&fakeHealth{}, "/version", 200, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0","stoa":"` + version.Stoa + `","stoacluster":"0.1.0"}`},
		{&fakeHealth{}, "/", 404, "404 page not found\n"},
		{&fakeHealth{}, "/debug/pprof/", 404, "404 page not found\n"},
	} {
		w := get(ClientPages(pages(tc.server)), tc.path)
		require.Equal(t, tc.code, w.Code, tc.path)
		require.Equal(t, tc.body, w.Body.String(), tc.path)
	}
}

func TestChecksAreCounted(t *testing.T) {
	f := &fakeHealth{agreed: errors.New("no")}
	h := MetricsPages(pages(f))
	get(h, "/health")
	get(h, "/readyz?exclude=non_learner")
	require.Equal(t, []string{"health-", "readyz/data_corruption+", "readyz/serializable_read+", "readyz/linearizable_read-"}, f.checked)
	require.Equal(t, 404, get(h, "/version").Code)
}

func TestOnlyGet(t *testing.T) {
	w := httptest.NewRecorder()
	ClientPages(pages(&fakeHealth{})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/health", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestPprofOnDemand(t *testing.T) {
	p := pages(&fakeHealth{})
	p.Pprof = true
	require.Equal(t, 200, get(ClientPages(p), "/debug/pprof/").Code)
	require.Equal(t, 200, get(ClientPages(p), "/debug/vars").Code)
}

func TestGuard(t *testing.T) {
	p := pages(&fakeHealth{})
	p.Hosts, p.Origins = []string{"db.example.com"}, []string{"https://ui.example.com"}
	h := ClientPages(p)
	for host, code := range map[string]int{"db.example.com:2379": 200, "db.example.com": 200, "evil.example.com": 421} {
		r := httptest.NewRequest(http.MethodGet, "/version", nil)
		r.Host = host
		r.Header.Set("Origin", "https://ui.example.com")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, code, w.Code, host)
		if code == 200 {
			require.Equal(t, "https://ui.example.com", w.Header().Get("Access-Control-Allow-Origin"))
		}
	}
	for origin, code := range map[string]int{"https://ui.example.com": 200, "https://evil.example.com": 403, "": 200} {
		r := httptest.NewRequest(http.MethodGet, "/version", nil)
		r.Host = "db.example.com"
		r.Header.Set("Upgrade", "websocket")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, code, w.Code, origin)
	}
	w := httptest.NewRecorder()
	ClientPages(pages(&fakeHealth{})).ServeHTTP(w, httptest.NewRequest(http.MethodOptions, "/health", nil))
	require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	require.Empty(t, w.Body.String())
}

func TestGateway(t *testing.T) {
	p := pages(&fakeHealth{})
	require.Equal(t, 404, get(ClientPages(p), "/v3/kv/range").Code)
	p.Gateway = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "gateway ", r.URL.Path) })
	h := ClientPages(p)
	require.Equal(t, "gateway /v3/kv/range", get(h, "/v3/kv/range").Body.String())
	require.Equal(t, "gateway /v3/kv/range", get(h, "/v3beta/kv/range").Body.String())
	require.Equal(t, 404, get(h, "/v3alpha/kv/range").Code)
	require.Equal(t, 200, get(h, "/health").Code)
	require.Equal(t, 404, get(MetricsPages(p), "/v3/kv/range").Code)
}

// A client whose certificate says over gRPC what it may do is refused: it might take
// itself for that user here, too.
func TestGatewayKnowsNoNames(t *testing.T) {
	enforced := true
	p := pages(&fakeHealth{})
	p.Gateway = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "gateway") })
	p.NamesCount = func() bool { return enforced }
	h := ClientPages(p)
	ask := func(path, name string) int {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusBadRequest, ask("/v3/kv/range", "alice"))
	require.Equal(t, http.StatusBadRequest, ask("/v3beta/kv/range", "alice"))
	require.Equal(t, http.StatusOK, ask("/v3/kv/range", ""))
	require.Equal(t, http.StatusMethodNotAllowed, ask("/health", "alice"))
	enforced = false
	require.Equal(t, http.StatusOK, ask("/v3/kv/range", "alice"))
}

type fakeMembers struct{}

func (fakeMembers) ClusterID() uint64      { return 0xabc }
func (fakeMembers) ClusterVersion() string { return "0.1.0" }
func (fakeMembers) Members() []*pb.Member {
	return []*pb.Member{{ID: 1, Name: "a", PeerURLs: []string{"http://a:1"}, ClientURLs: []string{"http://a:2"}}, {ID: 2, PeerURLs: []string{"http://b:1"}, IsLearner: true}}
}

func TestPeerPages(t *testing.T) {
	h := PeerPages(fakeMembers{})
	w := get(h, "/members")
	require.Equal(t, "abc", w.Header().Get("X-Etcd-Cluster-ID"))
	require.Equal(t, `[{"id":1,"peerURLs":["http://a:1"],"name":"a","clientURLs":["http://a:2"]},{"id":2,"peerURLs":["http://b:1"],"isLearner":true}]`, w.Body.String())
	require.Equal(t, 200, get(h, "/version").Code)
	require.Equal(t, 404, get(h, "/raft").Code)
}

func TestPageForBrowsersGuardsItsHost(t *testing.T) {
	p := pages(&fakeHealth{})
	p.UI = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	p.Hosts, p.Origins = []string{"*", "db.example.com"}, []string{"*"}
	h := MetricsPages(p)
	for host, code := range map[string]int{
		"127.0.0.1:2381": 200, "[::1]:2381": 200, "[::1]": 200, "localhost": 200, "localhost:1": 200, "db.example.com:1": 200,
		"evil.example": 421, "evil.example:2381": 421, "127.0.0.1.evil.example": 421, "": 421,
	} {
		for _, path := range []string{"/ui", "/ui/", "/ui/v3/kv/range"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, code, w.Code, "%s at %s", path, host)
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
			r.TLS = &tls.ConnectionState{}
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, 200, w.Code, "%s at %s over TLS", path, host)
		}
	}
	require.Equal(t, 404, get(ClientPages(p), "/ui/").Code)
}
