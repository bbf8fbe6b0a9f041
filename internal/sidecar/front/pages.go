package front

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/version"
)

// checkTimeout bounds what is behind a page.
const checkTimeout = 5 * time.Second

// Pages are the HTTP pages, the same on all ports.
func (f *Front) Pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.o.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", f.health)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", f.readyz)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		serve.WriteJSON(w, http.StatusOK, map[string]string{"etcdserver": version.Etcd, "etcdcluster": version.Cluster, "stoa": version.Stoa})
	})
	return mux
}

// health answers in the form of an etcd server's.
func (f *Front) health(w http.ResponseWriter, r *http.Request) {
	if err := f.check(r, "health", f.o.Health); err != nil {
		serve.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"health": "false", "reason": "RANGE ERROR:" + err.Error()})
		return
	}
	serve.WriteJSON(w, http.StatusOK, map[string]string{"health": "true", "reason": ""})
}

func (f *Front) readyz(w http.ResponseWriter, r *http.Request) {
	ready := f.o.Ready
	if f.draining.Load() {
		ready = func(context.Context) error { return ErrDraining }
	}
	err := f.check(r, "readyz", ready)
	if err != nil && !f.draining.Load() && r.URL.Query().Has("cached") && f.o.Cached != nil && f.o.Cached() {
		fmt.Fprintf(w, "ok for serializable reads of cached keys\n[-]cluster failed: %v\n", err)
		return
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("[-]cluster failed: %v", err), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (f *Front) check(r *http.Request, page string, by func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	err := by(ctx)
	f.checks.WithLabelValues(page, strconv.FormatBool(err == nil)).Inc()
	return err
}
