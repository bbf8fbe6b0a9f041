package composed

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/version"
)

// healthTimeout bounds the syncs behind a page.
const healthTimeout = 5 * time.Second

// pages are the HTTP pages, the same on all ports.
func (s *Server) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		serve.WriteJSON(w, http.StatusOK, map[string]string{"etcdserver": version.Etcd, "etcdcluster": version.Cluster, "stoa": version.Stoa})
	})
	return mux
}

// health is true while all clusters answer linearizable reads.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if _, err := s.services.check(ctx); err != nil {
		serve.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"health": "false", "reason": err.Error()})
		return
	}
	serve.WriteJSON(w, http.StatusOK, map[string]string{"health": "true", "reason": ""})
}

// readyz is true while a cluster answers: keys of others are no reason to stop an application.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		http.Error(w, "[-]clusters failed: the sidecar is shutting down", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if answered, err := s.services.check(ctx); answered == 0 {
		http.Error(w, fmt.Sprintf("[-]clusters failed: %v", err), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
