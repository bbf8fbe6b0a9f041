package metrics

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts durations in buckets each of which reaches twice as far as the one
// before, as nearly all of etcd's do. Where an observation may cost no more than a few
// nanoseconds it takes the place of prometheus', which searches its buckets: to observe
// is a division and two atomic additions, also for many equal ones at once.
//
// It may be used by any number of goroutines, and is a collector only through a Family.
type Histogram struct {
	least   uint64 // nanoseconds, the first bucket's bound
	buckets []atomic.Uint64
	sum     atomic.Uint64 // nanoseconds
}

func newHistogram(least time.Duration, buckets int) *Histogram {
	return &Histogram{least: uint64(least), buckets: make([]atomic.Uint64, buckets+1)}
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) { h.ObserveMany(d, 1) }

// ObserveMany counts n durations of d each.
func (h *Histogram) ObserveMany(d time.Duration, n uint64) {
	ns := uint64(max(d, 0))
	i := 0
	if ns > h.least {
		i = min(bits.Len64((ns-1)/h.least), len(h.buckets)-1)
	}
	h.buckets[i].Add(n)
	h.sum.Add(ns * n)
}

// snapshot returns the arguments of prometheus.MustNewConstHistogram.
func (h *Histogram) snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = map[float64]uint64{}
	for i := range h.buckets {
		count += h.buckets[i].Load()
		if i < len(h.buckets)-1 {
			buckets[h.bound(i)] = count
		}
	}
	return count, float64(h.sum.Load()) / float64(time.Second), buckets
}

// bound is what prometheus.ExponentialBuckets computes: le is part of a series' name.
func (h *Histogram) bound(i int) float64 {
	return time.Duration(h.least).Seconds() * math.Pow(2, float64(i))
}

// Family is the histograms of one name, which differ in their labels. Like prometheus' own
// vectors it shows those that have counted something.
type Family struct {
	desc    *prometheus.Desc
	least   time.Duration
	buckets int
	all     []member
}

type member struct {
	*Histogram
	labels []string
}

// NewFamily returns a family whose first bucket ends at least, with so many buckets beside
// the one without a bound.
func NewFamily(name, help string, least time.Duration, buckets int, labels ...string) *Family {
	return &Family{desc: prometheus.NewDesc(name, help, labels, nil), least: least, buckets: buckets}
}

// With adds a histogram. All must be there before the family is registered.
func (f *Family) With(labels ...string) *Histogram {
	h := newHistogram(f.least, f.buckets)
	f.all = append(f.all, member{h, labels})
	return h
}

// Describe implements prometheus.Collector.
func (f *Family) Describe(out chan<- *prometheus.Desc) { out <- f.desc }

// Collect implements prometheus.Collector.
func (f *Family) Collect(out chan<- prometheus.Metric) {
	for _, m := range f.all {
		count, sum, buckets := m.snapshot()
		if count > 0 || len(m.labels) == 0 {
			out <- prometheus.MustNewConstHistogram(f.desc, count, sum, buckets, m.labels...)
		}
	}
}
