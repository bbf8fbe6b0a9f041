package dashboards

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// job is the name of the servers' job: it suits stoa's rules and etcd's.
const job = "stoa-etcd"

// sample is a line of /metrics, with the labels that Prometheus adds.
type sample struct {
	name, labels string
	on           *process.Server
	value        float64
}

type samples []sample

// scrape asks all servers, as Prometheus does, and adds up.
func scrape(t *testing.T, c *process.Cluster) (all samples) {
	t.Helper()
	for _, s := range c.Servers {
		up := 0.0
		if s.Running() {
			up = 1
			all = append(all, samplesOf(t, s)...)
		}
		all = append(all, sample{name: "up", on: s, value: up})
	}
	return all
}

// samplesOf are those of one process.
func samplesOf(t *testing.T, s *process.Server) (all samples) {
	t.Helper()
	resp, err := http.Get(s.ClientURL + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			all = append(all, parseSample(t, s, strings.TrimSpace(line)))
		}
	}
	return all
}

// settled scrapes when all servers have applied the same: promtool takes the samples for those of
// an hour.
func settled(t *testing.T, c *process.Cluster) (all samples) {
	t.Helper()
	require.Eventually(t, func() bool {
		all = scrape(t, c)
		applied := map[string]float64{}
		for _, s := range all {
			if s.name == "stoa_partition_applied_index" {
				if other, ok := applied[s.labels]; ok && other != s.value {
					return false
				}
				applied[s.labels] = s.value
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond)
	return all
}

func parseSample(t *testing.T, s *process.Server, line string) sample {
	t.Helper()
	end := strings.LastIndexByte(line, ' ')
	value, err := strconv.ParseFloat(line[end+1:], 64)
	require.NoError(t, err, line)
	name, labels, _ := strings.Cut(line[:end], "{")
	return sample{name: name, labels: strings.TrimSuffix(labels, "}"), on: s, value: value}
}

func (a samples) has(name string) bool {
	return slices.ContainsFunc(a, func(s sample) bool { return s.name == name })
}

func (a samples) value(name string, on *process.Server) float64 {
	for _, s := range a {
		if s.name == name && s.on == on {
			return s.value
		}
	}
	return -1
}

type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type firing struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// fires has promtool evaluate the rules as if all samples stayed for an hour. The alerts that fire
// in the end must be those that are named.
func fires(t *testing.T, sources []*source, shown samples, alerts []string) {
	t.Helper()
	named := map[string]bool{"up": true}
	var files []string
	for _, s := range sources {
		files = append(files, s.rulesFile)
		for name := range s.metrics(t) {
			named[name] = true
		}
	}
	var input []series
	for _, s := range shown {
		if named[s.name] {
			labels := strings.TrimPrefix(s.labels+fmt.Sprintf(`,job=%q,instance=%q`, job, s.on.Name), ",")
			input = append(input, series{s.name + "{" + labels + "}", strconv.FormatFloat(s.value, 'f', -1, 64) + "x60"})
		}
	}
	expected := []firing{}
	for _, name := range alerts {
		expected = append(expected, firing{fmt.Sprintf("{alertname=%q}", name), 1})
	}
	test := map[string]any{
		"rule_files": files, "evaluation_interval": "1m",
		"tests": []any{map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": []any{map[string]any{
			"expr": `group by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": "58m", "exp_samples": expected,
		}}}},
	}
	text, err := json.Marshal(test)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "test.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "test", "rules", file)
}
