package sidecar

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/sidecar/cache"
	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// metrics is what the sidecar shows on /metrics.
type metrics struct {
	registry *prometheus.Registry
	handled  *prometheus.CounterVec

	sessions                   prometheus.Gauge
	batches, batched, unshared prometheus.Counter

	rewatches, watchReceived, watchSent prometheus.Counter
	renewals, keptAlive                 prometheus.Counter

	cacheHits                      *prometheus.CounterVec
	cacheForwarded, cacheQuestions prometheus.Counter

	others *counted // methods that this release doesn't know
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoa_sidecar_handled_total", Help: "Calls of local clients that have ended, by method and gRPC code.",
		}, []string{"method", "code"}),
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
	m.rewatches = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_watch_stream_failures_total", Help: "Ends of the streams to members that coalesced watches follow, and failures to open them.",
	})
	m.watchReceived = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_watch_upstream_events_total", Help: "Events received for coalesced watches.",
	})
	m.watchSent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_watch_responses_total", Help: "Responses sent to coalesced watches of local clients.",
	})
	m.renewals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_lease_renewals_total", Help: "Renewals of leases sent to members.",
	})
	m.keptAlive = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_keepalive_responses_total", Help: "Answers to coalesced keep-alives of local clients.",
	})
	m.cacheHits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stoa_sidecar_cache_reads_total", Help: "Reads of cached prefixes that were answered from memory, by level.",
	}, []string{"level"})
	m.cacheForwarded = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_cache_forwarded_reads_total", Help: "Reads of cached prefixes that were not answered from memory: the keys were not loaded, or too many, or there are extensions, or the cluster did not answer in time.",
	})
	m.cacheQuestions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stoa_sidecar_cache_questions_total", Help: "Questions to the cluster for linearizable reads of cached prefixes; many reads share one.",
	})
	m.registry.MustRegister(m.renewals, m.keptAlive, m.rewatches, m.watchReceived, m.watchSent)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.handled, m.sessions, m.batches, m.batched, m.unshared)
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

// watch shows numbers of coalesced watches.
func (m *metrics) watch(all []*watches) {
	for _, g := range []struct {
		name, help string
		of         func(relay.Stats) int
	}{
		{"watch_streams", "Streams of local clients whose watches are coalesced.", func(s relay.Stats) int { return s.Streams }},
		{"watchers", "Coalesced watches of local clients.", func(s relay.Stats) int { return s.Watchers }},
		{"upstream_watchers", "Watches at members that coalesced watches follow.", func(s relay.Stats) int { return s.Upstream }},
		{"catching_up_watchers", "Coalesced watches that catch up, each by a watch of its own at a member.", func(s relay.Stats) int { return s.Behind }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stoa_sidecar_" + g.name, Help: g.help}, func() float64 {
			n := 0
			for _, ws := range all {
				n += g.of(ws.stats())
			}
			return float64(n)
		}))
	}
}

// keepAlive shows the number of streams whose keep-alives are coalesced.
func (m *metrics) keepAlive(all []*keepAlives) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stoa_sidecar_keepalive_streams", Help: "Streams of local clients whose keep-alives are coalesced.",
	}, func() float64 {
		n := 0
		for _, k := range all {
			n += k.stats().Streams
		}
		return float64(n)
	}))
}

// cache shows numbers of cached prefixes.
func (m *metrics) cache(cs *caches) {
	of := func(name, help string, value func(*cache.Prefix) float64) {
		for _, p := range cs.prefixes {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "stoa_sidecar_cache_" + name, Help: help, ConstLabels: prometheus.Labels{"prefix": p.name},
			}, func() float64 {
				cs.ws.mu.Lock()
				defer cs.ws.mu.Unlock()
				return value(p.prefix)
			}))
		}
	}
	of("keys", "Keys of a cached prefix.", func(p *cache.Prefix) float64 {
		if v := p.View(); v != nil {
			return float64(v.Len())
		}
		return 0
	})
	of("bytes", "Memory of a cached prefix.", func(p *cache.Prefix) float64 { return float64(p.Used()) })
	of("serving", "Whether reads of a cached prefix can be answered: its keys are loaded, and watched.", func(p *cache.Prefix) float64 { return number(p.View() != nil) })
	of("too_large", "Whether a cached prefix doesn't fit into --cache-memory: then its reads are forwarded.", func(p *cache.Prefix) float64 { return number(p.TooLarge()) })
	for _, serializable := range []bool{false, true} {
		m.cacheServed(serializable) // so that it is there before the first read
	}
	m.registry.MustRegister(m.cacheHits, m.cacheForwarded, m.cacheQuestions)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// cacheServed counts reads that were answered from memory.
func (m *metrics) cacheServed(serializable bool) prometheus.Counter {
	if serializable {
		return m.cacheHits.WithLabelValues("serializable")
	}
	return m.cacheHits.WithLabelValues("linearizable")
}
