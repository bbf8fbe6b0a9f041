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
	if r.TLS == nil && !g.anyHost && !slices.Contains(g.hosts, hostOf(r)) {
		rejectHost(w, r, g.lg)
		return
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

func hostOf(r *http.Request) string {
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		return h
	}
	return r.Host
}

func rejectHost(w http.ResponseWriter, r *http.Request, lg *zap.Logger) {
	host := hostOf(r)
	lg.Warn("rejecting HTTP request to prevent DNS rebinding attacks", zap.String("host", host))
	http.Error(w, fmt.Sprintf("the Host header %q is not in --host-whitelist: add it, or use https", host), http.StatusMisdirectedRequest)
}

// hostGuard is stricter, for what is made for browsers: a plain request has to name an
// address, localhost or a host of the list, in which "*" doesn't count. No page of another origin
// may read the answers.
type hostGuard struct {
	hosts []string
	lg    *zap.Logger
	next  http.Handler
}

func (g *hostGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r)
	if r.TLS == nil && host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil && !slices.Contains(g.hosts, host) {
		rejectHost(w, r, g.lg)
		return
	}
	g.next.ServeHTTP(w, r)
}

func allowOrigin(w http.ResponseWriter, origin string) {
	w.Header().Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Allow-Headers", "accept, content-type, authorization")
}
