package sidecar

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics is what the sidecar shows on /metrics.
type metrics struct {
	registry *prometheus.Registry
	handled  *prometheus.CounterVec
	inFlight prometheus.Gauge
	checks   *prometheus.CounterVec

	sessions                   prometheus.Gauge
	batches, batched, unshared prometheus.Counter

	others *counted // methods that this release doesn't know
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoa_sidecar_handled_total", Help: "Calls of local clients that have ended, by method and gRPC code.",
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoa_sidecar_in_flight_requests", Help: "Calls of local clients in progress, without streams that have no end of their own.",
		}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoa_sidecar_health_checks_total", Help: "Requests of /health and /readyz, by result.",
		}, []string{"page", "ok"}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "stoa_sidecar_sessions", Help: "Open sessions with the cluster."}),
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoa_sidecar_session_batches_total", Help: "Batches of requests sent over sessions.",
		}),
		batched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoa_sidecar_session_requests_total", Help: "Requests sent over sessions.",
		}),
		unshared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stoa_sidecar_unshared_requests_total", Help: "Requests that could have gone over a session, but were calls of their own: none was open, or it was slow, or refused the request.",
		}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.handled, m.inFlight, m.checks, m.sessions, m.batches, m.batched, m.unshared)
	m.others = m.method("other")
	return m
}

// counted counts the calls of one method.
type counted struct {
	of *prometheus.CounterVec
	ok prometheus.Counter
}

func (m *metrics) method(name string) *counted {
	of := m.handled.MustCurryWith(prometheus.Labels{"method": name})
	return &counted{of: of, ok: of.WithLabelValues(codes.OK.String())}
}

func (c *counted) ended(err error) {
	if err == nil {
		c.ok.Inc()
		return
	}
	code := status.Code(err)
	if code > codes.Unauthenticated {
		code = codes.Unknown
	}
	c.of.WithLabelValues(code.String()).Inc()
}
