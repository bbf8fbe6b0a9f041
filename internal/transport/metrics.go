package transport

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics have etcd's names, so that dashboards made for etcd work. The caller
// registers them, once per process.
type Metrics struct {
	active, snapshotsSending, snapshotsReceiving           *prometheus.GaugeVec
	disconnected, sentBytes, receivedBytes, sendFailures   *prometheus.CounterVec
	snapshotsSent, snapshotSendFailures                    *prometheus.CounterVec
	snapshotsReceived, snapshotReceiveFailures             *prometheus.CounterVec
	roundTrip, snapshotSendSeconds, snapshotReceiveSeconds *prometheus.HistogramVec

	all []prometheus.Collector
}

// NewMetrics makes metrics that are not registered yet.
func NewMetrics() *Metrics {
	m := &Metrics{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "etcd", Subsystem: "network", Name: name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "etcd", Subsystem: "network", Name: name, Help: help}, labels)
		m.all = append(m.all, g)
		return g
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "etcd", Subsystem: "network", Name: name, Help: help, Buckets: buckets}, labels)
		m.all = append(m.all, h)
		return h
	}
	m.active = gauge("active_peers", "Links to peers that are up.", "Local", "Remote")
	m.disconnected = counter("disconnected_peers_total", "Links to peers that broke.", "Local", "Remote")
	m.sentBytes = counter("peer_sent_bytes_total", "Bytes sent to peers.", "To")
	m.receivedBytes = counter("peer_received_bytes_total", "Bytes received from peers.", "From")
	m.sendFailures = counter("peer_sent_failures_total", "Times that something meant for a peer was lost.", "To")
	m.roundTrip = histogram("peer_round_trip_time_seconds", "Time from a ping to its answer.", prometheus.ExponentialBuckets(0.0001, 2, 16), "To")
	m.snapshotsSent = counter("snapshot_send_success", "Snapshots that a peer has installed.", "To")
	m.snapshotSendFailures = counter("snapshot_send_failures", "Snapshots that failed to reach a peer.", "To")
	m.snapshotsSending = gauge("snapshot_send_inflights_total", "Snapshots being sent.", "To")
	m.snapshotSendSeconds = histogram("snapshot_send_total_duration_seconds", "Time to send a snapshot.", prometheus.ExponentialBuckets(0.1, 2, 10), "To")
	m.snapshotsReceived = counter("snapshot_receive_success", "Snapshots received and installed.", "From")
	m.snapshotReceiveFailures = counter("snapshot_receive_failures", "Snapshots that failed to arrive or to be installed.", "From")
	m.snapshotsReceiving = gauge("snapshot_receive_inflights_total", "Snapshots being received.", "From")
	m.snapshotReceiveSeconds = histogram("snapshot_receive_total_duration_seconds", "Time to receive and install a snapshot.", prometheus.ExponentialBuckets(0.1, 2, 10), "From")
	return m
}

// Describe and Collect make Metrics a prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
}

// peerMetrics are the metrics of one peer that count often, looked up once.
type peerMetrics struct {
	active                                               prometheus.Gauge
	disconnected, sentBytes, receivedBytes, sendFailures prometheus.Counter
	roundTrip                                            prometheus.Observer
}

func label(id uint64) string { return fmt.Sprintf("%x", id) }

func (m *Metrics) of(local, remote uint64) peerMetrics {
	l, r := label(local), label(remote)
	return peerMetrics{
		active:        m.active.WithLabelValues(l, r),
		disconnected:  m.disconnected.WithLabelValues(l, r),
		sentBytes:     m.sentBytes.WithLabelValues(r),
		receivedBytes: m.receivedBytes.WithLabelValues(r),
		sendFailures:  m.sendFailures.WithLabelValues(r),
		roundTrip:     m.roundTrip.WithLabelValues(r),
	}
}
