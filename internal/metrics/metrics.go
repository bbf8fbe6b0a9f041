package metrics

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stoa-kv/stoa/internal/version"
)

// Metrics are the events that a server counts. All fields may be used by any
// number of goroutines.
type Metrics struct {
	Registry   *prometheus.Registry
	Disk       Disk
	Server     Server
	Store      Store
	Extensions Extensions

	health       *prometheus.CounterVec
	healthGauge  *prometheus.GaugeVec
	healthOK     prometheus.Counter
	healthFailed prometheus.Counter
	features     *prometheus.GaugeVec
}

// Disk is how long it takes until something is durable.
type Disk struct {
	WALWrite, WALFsync prometheus.Histogram
	WALBytes           prometheus.Gauge // written; a gauge, as in etcd
	// BackendCommit is a whole flush, the three others are parts of it.
	BackendCommit, Rebalance, Spill, Write prometheus.Histogram
	Defragment, Snapshot                   prometheus.Histogram
	Defragmenting                          prometheus.Gauge
	SnapshotSave                           prometheus.Histogram // of another server's
	Scrubs                                 prometheus.Counter   // passes
}

// New makes the metrics of one server.
func New() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := factory{r}
	m := &Metrics{Registry: r}
	m.Disk.declare(f)
	m.Server.declare(f)
	m.Store.declare(f)
	m.Extensions.declare(f)
	m.declareHealth(f)
	m.features = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "etcd_server_feature_enabled", Help: "Whether the feature of this etcd feature gate is on. No gate can be changed.",
	}, []string{"name", "stage"})
	r.MustRegister(m.features)
	f.info("etcd_server_version", "Which etcd this server stands in for.", "server_version", version.Etcd)
	f.info("etcd_cluster_version", "Which version the members agree on.", "cluster_version", version.Cluster[:3])
	f.info("etcd_server_go_version", "Which Go version the server was built with.", "server_go_version", runtime.Version())
	f.info("stoa_version", "Which stoa this is.", "version", version.Stoa)
	return m
}

// Feature shows whether one of etcd's feature gates is on.
func (m *Metrics) Feature(name, stage string, on bool) {
	m.features.WithLabelValues(name, stage).Set(truth(on))
}

// Handler is the page.
func (m *Metrics) Handler() http.Handler {
	return promhttp.InstrumentMetricHandler(m.Registry, promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
}

func (m *Disk) declare(f factory) {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 14) // these and the following are etcd's
	m.WALWrite = f.histogram("etcd_disk_wal_write_duration_seconds", "Latency of a write to the log.", seconds)
	m.WALFsync = f.histogram("etcd_disk_wal_fsync_duration_seconds", "Latency of the sync of the log.", seconds)
	m.WALBytes = f.gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the log.")
	m.BackendCommit = f.histogram("etcd_disk_backend_commit_duration_seconds", "Latency of a durable commit of the backend.", seconds)
	m.Rebalance = f.histogram("etcd_debugging_disk_backend_commit_rebalance_duration_seconds", "Part of a commit that bbolt's rebalancing took.", seconds)
	m.Spill = f.histogram("etcd_debugging_disk_backend_commit_spill_duration_seconds", "Part of a commit that bbolt's spilling took.", seconds)
	m.Write = f.histogram("etcd_debugging_disk_backend_commit_write_duration_seconds", "Part of a commit that bbolt's writing took.", seconds)
	m.Defragment = f.histogram("etcd_disk_backend_defrag_duration_seconds", "Duration of defragmentations of the backend.", prometheus.ExponentialBuckets(.1, 2, 13))
	m.Defragmenting = f.gauge("etcd_disk_defrag_inflight", "1 while the backend is being defragmented.")
	m.Snapshot = f.histogram("etcd_disk_backend_snapshot_duration_seconds", "How long a snapshot of the backend was open.", prometheus.ExponentialBuckets(.01, 2, 17))
	m.Scrubs = f.counter("stoa_scrubs_total", "How often all keys in memory have been compared with the state file.")
	m.SnapshotSave = f.histogram("etcd_snap_db_save_total_duration_seconds", "How long it took to store a snapshot of another server.", prometheus.ExponentialBuckets(0.1, 2, 10))
}

func (m *Metrics) declareHealth(f factory) {
	m.healthOK = f.counter("etcd_server_health_success", "Successful health checks.")
	m.healthFailed = f.counter("etcd_server_health_failures", "Failed health checks.")
	m.healthGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_healthcheck", Help: "The last result of each kind of health check."}, []string{"type", "name"})
	m.health = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_server_healthchecks_total", Help: "Each kind of health check."}, []string{"type", "name", "status"})
	f.r.MustRegister(m.healthGauge, m.health)
}

// HealthChecked counts a result of /health, /livez or /readyz.
func (m *Metrics) HealthChecked(kind, name string, ok bool) {
	if kind == "health" {
		if ok {
			m.healthOK.Inc()
		} else {
			m.healthFailed.Inc()
		}
		return
	}
	status, v := "error", 0.0
	if ok {
		status, v = "success", 1
	}
	m.healthGauge.WithLabelValues(kind, name).Set(v)
	m.health.WithLabelValues(kind, name, status).Inc()
}

// Traffic shows counters of bytes kept by other packages.
func (m *Metrics) Traffic(received, sent func() uint64) {
	for name, get := range map[string]func() uint64{"received": received, "sent": sent} {
		m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "etcd_network_client_grpc_" + name + "_bytes_total",
			Help: fmt.Sprintf("Bytes %s on gRPC connections of clients, as on the wire.", name),
		}, func() float64 { return float64(get()) }))
	}
}

// factory registers what it makes.
type factory struct{ r *prometheus.Registry }

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.r.MustRegister(c)
	return c
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.r.MustRegister(g)
	return g
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	f.r.MustRegister(h)
	return h
}

func (f factory) info(name, help, label, value string) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	f.r.MustRegister(g)
	g.WithLabelValues(value).Set(1)
}
