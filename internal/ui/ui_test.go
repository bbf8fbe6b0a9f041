package ui

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gateway keeps the requests that reach it.
type gateway struct{ got []*http.Request }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.got = append(g.got, r) }

func page(users bool) (*gateway, http.Handler) {
	g := &gateway{}
	return g, New(Options{Gateway: g, Users: func() bool { return users }})
}

func send(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:2381"+path, strings.NewReader("{}"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	_, h := page(false)
	for name := range files() {
		path := "/ui/" + strings.TrimSuffix(name, "{$}")
		w := send(h, http.MethodGet, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotEmpty(t, w.Header().Get("Content-Type"), path)
		require.Equal(t, http.StatusNotModified, send(h, http.MethodGet, path, "If-None-Match", w.Header().Get("ETag")).Code, path)
	}
	require.Equal(t, "/ui/", send(h, http.MethodGet, "/ui").Header().Get("Location"))
	for _, path := range []string{"/ui/nope.js", "/ui/static/app.js", "/ui/%2e%2e/ui.go", "/ui/{$}"} {
		require.Equal(t, http.StatusNotFound, send(h, http.MethodGet, path).Code, path)
	}
}

func TestHeadersOfAllAnswers(t *testing.T) {
	_, h := page(false)
	for _, path := range []string{"/ui/", "/ui/app.js", "/ui/nope"} {
		got := send(h, http.MethodGet, path).Header()
		csp := got.Get("Content-Security-Policy")
		require.NotContains(t, csp, "unsafe", path)
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			require.Contains(t, csp, rule, path)
		}
		require.Equal(t, "nosniff", got.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-referrer", got.Get("Referrer-Policy"), path)
		require.Empty(t, got.Get("Access-Control-Allow-Origin"), path)
	}
}

// The policy would keep a browser from using them, and the page from working.
func TestFilesHaveNoForeignHostAndNothingInline(t *testing.T) {
	namespaces := regexp.MustCompile(`http://www\.w3\.org/[\w/]+`)
	for name, f := range files() {
		text := namespaces.ReplaceAllString(f.content, "")
		require.NotRegexp(t, `(?i)\b(https?|wss?):|["'(]//`, text, name)
		require.NotRegexp(t, `(?i)\bjavascript:|\beval\(|new Function|\.(inner|outer)HTML *=[^=]|insertAdjacentHTML|document\.write|localStorage|sessionStorage|document\.cookie`, text, name)
		if strings.HasSuffix(f.name, ".html") {
			require.NotRegexp(t, `(?i)<style|\sstyle=|\son\w+=|<script(?:>|[^>]*>[^<])`, text, name)
		}
	}
}

func TestCallsThatArePassedOn(t *testing.T) {
	const token = "abc.1"
	for _, tc := range []struct {
		name, path string
		users      bool
		headers    []string
		code       int
		id         string // of the client, if it is passed on
	}{
		{"a read", "/ui/v3/kv/range", false, nil, 200, "stoa-ui"},
		{"a read of a user", "/ui/v3/kv/range", true, []string{"Authorization", token, "Stoa-User", "a/b%"}, 200, "a%2Fb%25/stoa-ui"},
		{"a user's name without a token", "/ui/v3/kv/range", true, []string{"Stoa-User", "alice"}, 200, "stoa-ui"},
		{"a client ID of the browser's", "/ui/v3/watch", false, []string{"Grpc-Metadata-Stoa-Client-Id", "anonymous"}, 200, "stoa-ui"},
		{"a change", "/ui/v3/kv/txn", true, nil, 403, ""},
		{"a change with a token", "/ui/v3/kv/txn", true, []string{"Authorization", token, "Stoa-User", "alice"}, 200, "alice/stoa-ui"},
		{"a change with any token, without authentication", "/ui/v3/kv/txn", false, []string{"Authorization", token}, 403, ""},
		{"another method", "/ui/v3/kv/put", true, []string{"Authorization", token}, 404, ""},
		{"another path to it", "/ui/v3/kv/range/../put", true, []string{"Authorization", token}, 307, ""},
		{"administration", "/ui/v3/auth/enable", true, []string{"Authorization", token}, 404, ""},
		{"a form of a foreign page", "/ui/v3/kv/range", false, []string{"Content-Type", "text/plain"}, 415, ""},
		{"another site", "/ui/v3/kv/range", false, []string{"Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"another port of the host", "/ui/v3/kv/range", false, []string{"Sec-Fetch-Site", "same-site"}, 403, ""},
		{"another origin, in an old browser", "/ui/v3/kv/range", false, []string{"Origin", "http://evil.example"}, 403, ""},
		{"the page itself", "/ui/v3/kv/range", false, []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:2381"}, 200, "stoa-ui"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, h := page(tc.users)
			w := send(h, http.MethodPost, tc.path, append([]string{"Content-Type", "application/json"}, tc.headers...)...)
			require.Equal(t, tc.code, w.Code, w.Body.String())
			if tc.id == "" {
				require.Empty(t, g.got)
				return
			}
			require.Len(t, g.got, 1)
			require.Equal(t, strings.TrimPrefix(tc.path, "/ui"), g.got[0].URL.Path)
			require.Equal(t, []string{tc.id}, g.got[0].Header.Values(clientHeader))
			require.NotEmpty(t, g.got[0].Header.Values(sessionsHeader))
		})
	}
	g, h := page(true)
	require.Equal(t, http.StatusMethodNotAllowed, send(h, http.MethodGet, "/ui/v3/kv/range").Code)
	require.Empty(t, g.got)
}
