package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Extensions count what each extension does on this server. There are series for
// those that are registered, and no others: clients choose the names.
type Extensions struct {
	mu     sync.RWMutex
	series map[string]*extensionSeries
	fresh  int // series begun since the last scrape
	// registered says which there are, and whether each is disabled.
	registered func() map[string]bool
}

// The reasons for which a call can fail.
var extensionFailures = [...]string{"limit", "script", "space"}

type extensionSeries struct {
	calls, steps, writes atomic.Uint64
	failed               [len(extensionFailures)]atomic.Uint64
	seconds              prometheus.Histogram
}

func newExtensionSeries(name string) *extensionSeries {
	return &extensionSeries{seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "stoa_extension_duration_seconds", Help: "How long calls of the extension's handlers took.",
		ConstLabels: prometheus.Labels{"extension": name},
		Buckets:     prometheus.ExponentialBuckets(1e-6, 4, 10), // 1 µs to 262 ms
	})}
}

type extensionLine struct {
	desc *prometheus.Desc
	of   func(*extensionSeries) *atomic.Uint64
}

func perExtension(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("stoa_extension_"+name, help, append([]string{"extension"}, more...), nil)
}

var extensionLines = []extensionLine{
	{perExtension("calls_total", "Calls of the extension's handlers."), func(s *extensionSeries) *atomic.Uint64 { return &s.calls }},
	{perExtension("steps_total", "Steps that calls have taken."), func(s *extensionSeries) *atomic.Uint64 { return &s.steps }},
	{perExtension("writes_total", "Keys that calls have written."), func(s *extensionSeries) *atomic.Uint64 { return &s.writes }},
}

var (
	extensionErrors     = perExtension("errors_total", "Calls that failed: at a limit, by an error of the script, for want of space.", "reason")
	extensionRegistered = perExtension("registered", "1 for each registered extension.")
	extensionDisabled   = perExtension("disabled", "Whether the extension is disabled.")
)

func (x *Extensions) declare(f factory) {
	x.series = map[string]*extensionSeries{}
	f.r.MustRegister(x)
}

// Watch says where to ask which extensions are registered, and whether each is
// disabled.
func (x *Extensions) Watch(registered func() map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.registered = registered
}

// Called counts a call. failed is why it failed, "" if it didn't.
func (x *Extensions) Called(name string, took time.Duration, steps int64, writes int, failed string) {
	s := x.seriesOf(name)
	s.calls.Add(1)
	s.steps.Add(uint64(max(steps, 0)))
	s.writes.Add(uint64(max(writes, 0)))
	s.seconds.Observe(took.Seconds())
	for i, reason := range extensionFailures {
		if failed == reason {
			s.failed[i].Add(1)
		}
	}
}

// maxUnseen bounds the series of extensions that are registered and removed
// between scrapes: to read the registered ones, Called would need locks that
// its caller holds.
const maxUnseen = 1000

func (x *Extensions) seriesOf(name string) *extensionSeries {
	x.mu.RLock()
	s := x.series[name]
	x.mu.RUnlock()
	if s != nil {
		return s
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s = x.series[name]; s == nil {
		if x.fresh++; x.fresh > maxUnseen {
			clear(x.series)
			x.fresh = 1
		}
		s = newExtensionSeries(name)
		x.series[name] = s
	}
	return s
}

// Describe implements prometheus.Collector.
func (x *Extensions) Describe(out chan<- *prometheus.Desc) {
	for _, l := range extensionLines {
		out <- l.desc
	}
	out <- extensionErrors
	out <- extensionRegistered
	out <- extensionDisabled
}

// Collect implements prometheus.Collector.
func (x *Extensions) Collect(out chan<- prometheus.Metric) {
	x.mu.RLock()
	ask := x.registered
	x.mu.RUnlock()
	if ask == nil {
		return
	}
	registered := ask()
	x.forget(registered)
	for name, disabled := range registered {
		s := x.seriesOf(name)
		out <- prometheus.MustNewConstMetric(extensionRegistered, prometheus.GaugeValue, 1, name)
		out <- prometheus.MustNewConstMetric(extensionDisabled, prometheus.GaugeValue, truth(disabled), name)
		for _, l := range extensionLines {
			out <- prometheus.MustNewConstMetric(l.desc, prometheus.CounterValue, float64(l.of(s).Load()), name)
		}
		for i, reason := range extensionFailures {
			out <- prometheus.MustNewConstMetric(extensionErrors, prometheus.CounterValue, float64(s.failed[i].Load()), name, reason)
		}
		s.seconds.Collect(out)
	}
}

// forget drops the series of extensions that are gone.
func (x *Extensions) forget(registered map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fresh = 0
	for name := range x.series {
		if _, ok := registered[name]; !ok {
			delete(x.series, name)
		}
	}
}
