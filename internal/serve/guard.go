package serve

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// guard prevents foreign web pages from using a browser to reach a server
// that only the browser can reach: DNS rebinding (CVE-2018-5702) by the Host
// header of plain requests, other sites by CORS.
type guard struct {
	hosts, origins     []string
	anyHost, anyOrigin bool
	lg                 *zap.Logger
	next               http.Handler
}

func newGuard(hosts, origins []string, lg *zap.Logger, next http.Handler) http.Handler {
	all := func(s []string) bool {
		return len(s) == 0 || slices.Contains(s, "*") || slices.Equal(s, []string{""})
	}
	return &guard{hosts: hosts, origins: origins, anyHost: all(hosts), anyOrigin: all(origins), lg: lg, next: next}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v3beta/"); ok { // for etcd's older clients
		r.URL.Path = "/v3/" + rest
	}
	if r.TLS == nil && !g.anyHost {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !slices.Contains(g.hosts, host) {
			g.lg.Warn("rejecting HTTP request to prevent DNS rebinding attacks", zap.String("host", host))
			http.Error(w, fmt.Sprintf("the Host header %q is not in --host-whitelist: add it, or use https", host), http.StatusMisdirectedRequest)
			return
		}
	}
	origin := r.Header.Get("Origin")
	switch {
	case g.anyOrigin:
		allowOrigin(w, "*")
	case slices.Contains(g.origins, origin):
		allowOrigin(w, origin)
	case origin != "" && upgrades(r):
		// Browsers let any page read the messages of a websocket, whatever the header of the answer says.
		g.lg.Warn("rejecting a websocket of a page of another origin", zap.String("origin", origin))
		http.Error(w, fmt.Sprintf("the origin %q is not in --cors", origin), http.StatusForbidden)
		return
	}
	if r.Method == http.MethodOptions {
		return
	}
	g.next.ServeHTTP(w, r)
}

func allowOrigin(w http.ResponseWriter, origin string) {
	w.Header().Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Allow-Headers", "accept, content-type, authorization")
}
