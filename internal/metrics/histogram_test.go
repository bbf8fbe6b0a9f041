package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A histogram counts as prometheus' own with the same buckets.
func TestHistogramCountsAsPrometheusDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "h", Help: "help", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		})
		family := NewFamily("h", "help", 100*time.Microsecond, 20)
		ours := family.With()
		for range rapid.IntRange(0, 20).Draw(t, "observations") {
			d := time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "duration"))
			if rapid.Bool().Draw(t, "at a bound") {
				d = 100 * time.Microsecond << rapid.IntRange(0, 21).Draw(t, "bucket")
			}
			n := rapid.Uint64Range(1, 3).Draw(t, "times")
			ours.ObserveMany(d, n)
			for range n {
				theirs.Observe(d.Seconds())
			}
		}
		want, wantSum := text(t, theirs)
		counts, sum := text(t, family)
		require.Equal(t, want, counts)
		require.InDelta(t, wantSum, sum, 1e-6) // they add up seconds, ours are nanoseconds
	})
}

func text(t require.TestingT, c prometheus.Collector) (counts map[string]uint64, sum float64) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	got, err := r.Gather()
	require.NoError(t, err)
	counts = map[string]uint64{}
	for _, m := range got[0].Metric {
		counts["count"] = m.Histogram.GetSampleCount()
		sum = m.Histogram.GetSampleSum()
		for _, b := range m.Histogram.Bucket {
			counts[prometheus.BuildFQName("le", "", time.Duration(b.GetUpperBound()*float64(time.Second)+0.5).String())] = b.GetCumulativeCount()
		}
	}
	return counts, sum
}

func TestFamilyShowsOnlyHistogramsWithObservations(t *testing.T) {
	f := NewFamily("f", "help", time.Millisecond, 14, "type", "success")
	f.With("Put", "true").Observe(time.Second)
	f.With("Put", "false")
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(f)
	got, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, got[0].Metric, 1)
}

func BenchmarkObserve(b *testing.B) {
	b.Run("prometheus", func(b *testing.B) {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)})
		for b.Loop() {
			h.Observe(0.0005)
		}
	})
	b.Run("stoa", func(b *testing.B) {
		h := newHistogram(time.Millisecond, 14)
		for b.Loop() {
			h.Observe(500 * time.Microsecond)
		}
	})
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
	b.Run("since", func(b *testing.B) {
		at := time.Now()
		for b.Loop() {
			_ = time.Since(at)
		}
	})
}
