package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoa-kv/stoa/client/mirror"
)

// Metrics are those of the workers of a process. Their labels are the prefix, its home and
// the target.
type Metrics struct {
	elected, revision, behind, lag, copied *prometheus.GaugeVec
	written, failures                      *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"prefix", "home", "target"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "stoa", Subsystem: "mirror", Name: name, Help: help}, labels)
		r.MustRegister(g)
		return g
	}
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "stoa", Subsystem: "mirror", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	return &Metrics{
		elected:  gauge("elected", "1 if this process is the one that mirrors, 0 if it waits."),
		revision: gauge("revision", "Revision of home that the target has."),
		behind:   gauge("behind_revisions", "Revisions of home that the target doesn't have."),
		lag:      gauge("lag_seconds", "Time since which the target lacks a revision of home."),
		copied:   gauge("copied_keys", "Keys of home that the latest copy has compared."),
		written:  counter("copied_writes_total", "Keys that copies have written or deleted."),
		failures: counter("failures_total", "Failures after which the worker began again."),
	}
}

// Observe returns an observer that keeps the metrics of one worker, and calls another. How far the target
// is behind is 0 while it isn't elected.
func (m *Metrics) Observe(prefix, home, target string, next Observer) Observer {
	l := []string{prefix, home, target}
	o := next
	var before int64
	o.Waiting = func() {
		m.elected.WithLabelValues(l...).Set(0)
		m.behind.WithLabelValues(l...).Set(0)
		m.lag.WithLabelValues(l...).Set(0)
		m.failures.WithLabelValues(l...).Add(0) // so that it is there before the first
		if next.Waiting != nil {
			next.Waiting()
		}
	}
	o.Elected = func(mark mirror.Mark, resumed bool) {
		m.elected.WithLabelValues(l...).Set(1)
		if next.Elected != nil {
			next.Elected(mark, resumed)
		}
	}
	o.Copied = func(keys, total, written int64) {
		m.copied.WithLabelValues(l...).Set(float64(keys))
		if written < before { // another copy
			before = 0
		}
		m.written.WithLabelValues(l...).Add(float64(written - before))
		before = written
		if next.Copied != nil {
			next.Copied(keys, total, written)
		}
	}
	o.Following = func(s Status) {
		m.revision.WithLabelValues(l...).Set(float64(s.Revision))
		m.behind.WithLabelValues(l...).Set(float64(s.Behind))
		m.lag.WithLabelValues(l...).Set(s.Lag.Seconds())
		if next.Following != nil {
			next.Following(s)
		}
	}
	o.Failed = func(err error) {
		m.elected.WithLabelValues(l...).Set(0)
		m.failures.WithLabelValues(l...).Inc()
		if next.Failed != nil {
			next.Failed(err)
		}
	}
	return o
}
