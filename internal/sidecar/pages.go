package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/version"
)

// healthTimeout bounds the read behind a page.
const healthTimeout = 5 * time.Second

// pages are the HTTP pages, the same on all ports.
func (s *Server) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		serve.WriteJSON(w, http.StatusOK, map[string]string{"etcdserver": version.Etcd, "etcdcluster": version.Cluster, "stoa": version.Stoa})
	})
	return mux
}

// health answers as an etcd server does, by a linearizable read: that of the cluster.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	err := s.probe(r.Context(), false)
	s.metrics.checks.WithLabelValues("health", strconv.FormatBool(err == nil)).Inc()
	if err != nil {
		serve.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"health": "false", "reason": "RANGE ERROR:" + err.Error()})
		return
	}
	serve.WriteJSON(w, http.StatusOK, map[string]string{"health": "true", "reason": ""})
}

// readyz tells whether a member is reachable: a cluster without a quorum still answers
// serializable reads, and is no reason to stop an application.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	err := errDraining
	if !s.draining.Load() {
		err = s.probe(r.Context(), true)
	}
	s.metrics.checks.WithLabelValues("readyz", strconv.FormatBool(err == nil)).Inc()
	if err != nil {
		http.Error(w, fmt.Sprintf("[-]cluster failed: %v", err), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

var errDraining = errors.New("the sidecar is shutting down")

// probe reads a key through the cluster, once: etcd's client would try again until the time is
// over. A refusal for lack of rights is an answer, too.
func (s *Server) probe(ctx context.Context, serializable bool) error {
	conn, err := s.up.conn(false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("health"), CountOnly: true, Serializable: serializable})
	if known := rpctypes.Error(err); errors.Is(known, rpctypes.ErrPermissionDenied) || errors.Is(known, rpctypes.ErrUserEmpty) {
		return nil
	}
	return err
}
