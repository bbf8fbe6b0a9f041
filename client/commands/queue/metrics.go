package queue

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoa-kv/stoa/client/commands"
)

// Metrics are those of the executors of a process. Their labels are the set of the queue's clusters, as
// eu,us, and, of what concerns one of them, that cluster.
type Metrics struct {
	elected, waiting, clients, lag *prometheus.GaugeVec
	carried, failures              *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "stoa", Subsystem: "commands", Name: name, Help: help}, labels)
		r.MustRegister(g)
		return g
	}
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "stoa", Subsystem: "commands", Name: name, Help: help}, []string{"set", "cluster"})
		r.MustRegister(c)
		return c
	}
	return &Metrics{
		elected:  gauge("elected", "1 if this process carries out the queue's commands, 0 if it waits.", "set"),
		waiting:  gauge("waiting_batches", "Batches of commands that not all clusters of the set have had.", "set"),
		clients:  gauge("clients", "Clients that may send commands.", "set"),
		lag:      gauge("lag_seconds", "Time since which a cluster lacks commands that are in the queue.", "set", "cluster"),
		carried:  counter("carried_total", "Commands that this process has carried out in a cluster."),
		failures: counter("failures_total", "Failures after which the work in a cluster, or without one the executor, began again."),
	}
}

// Observe returns an observer that keeps the metrics of the executor of a set, and calls another. What an
// executor says of the queue is 0 while it isn't elected.
func (m *Metrics) Observe(set []string, next Observer) Observer {
	called, o := strings.Join(set, ","), next
	o.Waiting = func() {
		m.elected.WithLabelValues(called).Set(0)
		m.look(called, set, Look{})
		for _, cluster := range set { // so that they are there before the first
			m.carried.WithLabelValues(called, cluster).Add(0)
			m.failures.WithLabelValues(called, cluster).Add(0)
		}
		if next.Waiting != nil {
			next.Waiting()
		}
	}
	o.Elected = func() {
		m.elected.WithLabelValues(called).Set(1)
		if next.Elected != nil {
			next.Elected()
		}
	}
	o.Carried = func(cluster string, n int, mark commands.Mark) {
		m.carried.WithLabelValues(called, cluster).Add(float64(n))
		if next.Carried != nil {
			next.Carried(cluster, n, mark)
		}
	}
	o.Looked = func(l Look) {
		m.look(called, set, l)
		if next.Looked != nil {
			next.Looked(l)
		}
	}
	o.Failed = func(cluster string, err error) {
		m.failures.WithLabelValues(called, cluster).Inc()
		if cluster == "" {
			m.elected.WithLabelValues(called).Set(0)
			m.look(called, set, Look{})
		}
		if next.Failed != nil {
			next.Failed(cluster, err)
		}
	}
	return o
}

func (m *Metrics) look(called string, set []string, l Look) {
	m.waiting.WithLabelValues(called).Set(float64(l.Waiting))
	m.clients.WithLabelValues(called).Set(float64(l.Clients))
	for i, cluster := range set {
		seconds := 0.0
		if i < len(l.Lag) {
			seconds = l.Lag[i].Seconds()
		}
		m.lag.WithLabelValues(called, cluster).Set(seconds)
	}
}
