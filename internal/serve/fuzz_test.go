package serve

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// FuzzPages asks for pages of both ports with any path, parameters, host and origin.
func FuzzPages(f *testing.F) {
	f.Add("GET", "/health", "serializable=true&exclude=NOSPACE", "localhost", "http://a")
	f.Add("POST", "/livez/serializable_read", "verbose&exclude=x&allowlist=y", "evil", "")
	f.Add("OPTIONS", "/version", "%zz=%", "", "null")
	f.Add("HEAD", "/members", "", "[::1]:2379", "http://[")
	p := pages(&fakeHealth{})
	p.Hosts, p.Origins, p.Logger = []string{"localhost"}, []string{"http://a"}, zap.NewNop()
	all := []http.Handler{ClientPages(p), MetricsPages(p), PeerPages(fakeMembers{})}
	f.Fuzz(func(t *testing.T, method, path, query, host, origin string) {
		for _, h := range all {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Method, r.URL, r.Host = method, &url.URL{Path: path, RawQuery: query}, host
			r.Header.Set("Origin", origin)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.NotZero(t, w.Code)
		}
	})
}
