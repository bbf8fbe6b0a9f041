package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/mirror"
)

// What a worker tells its observer is what its metrics say, and the next observer is told as well.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	var told []string
	tell := func(what string) { told = append(told, what) }
	o := m.Observe("/a/", "eu", "us", Observer{
		Waiting:   func() { tell("waiting") },
		Elected:   func(mirror.Mark, bool) { tell("elected") },
		Copied:    func(int64, int64, int64) { tell("copied") },
		Following: func(Status) { tell("following") },
		Failed:    func(error) { tell("failed") },
	})
	bare := m.Observe("/b/", "eu", "us", Observer{})
	shows := func(why string, values map[string]float64) {
		t.Helper()
		got := gathered(t, registry, "/a/")
		for name, value := range values {
			require.Contains(t, got, "stoa_mirror_"+name, why)
			require.Equal(t, value, got["stoa_mirror_"+name], "%s: %s", why, name)
		}
	}

	for _, o := range []Observer{o, bare} {
		o.Waiting()
	}
	shows("waits", map[string]float64{"elected": 0, "behind_revisions": 0, "lag_seconds": 0, "failures_total": 0})
	for _, o := range []Observer{o, bare} {
		o.Elected(mirror.Mark{}, true)
	}
	shows("elected", map[string]float64{"elected": 1})

	o.Copied(500, 1000, 20)
	o.Copied(1000, 1000, 30)
	shows("a copy", map[string]float64{"copied_keys": 1000, "copied_writes_total": 30})
	o.Copied(500, 1000, 5)
	shows("another copy, whose writes are added", map[string]float64{"copied_keys": 500, "copied_writes_total": 35})
	bare.Copied(1, 2, 1)

	o.Following(Status{Revision: 70, Behind: 3, Lag: 1500 * time.Millisecond})
	bare.Following(Status{Revision: 7})
	shows("follows", map[string]float64{"revision": 70, "behind_revisions": 3, "lag_seconds": 1.5})

	o.Failed(errors.New("gone"))
	bare.Failed(errors.New("gone"))
	shows("failed", map[string]float64{"elected": 0, "failures_total": 1})
	o.Waiting()
	shows("waits again, behind nobody knows how far", map[string]float64{"revision": 70, "behind_revisions": 0, "lag_seconds": 0, "failures_total": 1})
	require.Equal(t, []string{"waiting", "elected", "copied", "copied", "copied", "following", "failed", "waiting"}, told)
}

// gathered is the metrics with a prefix of keys as their label.
func gathered(t *testing.T, from prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["prefix"] == prefix {
				require.Equal(t, map[string]string{"prefix": prefix, "home": "eu", "target": "us"}, labels)
				values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() // it has one
			}
		}
	}
	return values
}
