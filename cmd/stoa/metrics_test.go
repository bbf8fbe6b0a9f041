package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/commands/queue"
	"github.com/stoa-kv/stoa/client/mirror/worker"
	"github.com/stoa-kv/stoa/internal/serve"
)

var (
	ownMetric    = regexp.MustCompile(`\bstoa_[a-z_]*[a-z]\b`)
	familyOfRow  = regexp.MustCompile("`(stoa_[a-z]+_)\\*[`{]")
	typeOfMetric = regexp.MustCompile(`(?m)^# TYPE (stoa_\w+) `)
	spanOfMetric = regexp.MustCompile("`([a-z_]+)(?:\\{[a-z,]+\\})?`")
)

// Each metric of stoa's own is in the documents, by its whole name or in a row of its family (`stoa_x_*`), and each that they have exists.
func TestMetricsAreDocumented(t *testing.T) {
	s, _ := started(t, settings(t, t.TempDir(), "--audit-log="+filepath.Join(t.TempDir(), "audit")))
	at := s.ports.client[0].Addr().String()
	executors := prometheus.NewRegistry()
	worker.NewMetrics(executors)
	queue.NewMetrics(executors)
	composition := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(composition, []byte("clusters: {a: {endpoints: [http://"+at+"], kind: stoa}}\nroutes: [{prefix: '', cluster: a}]\n"), 0o600))

	_, err := client(t, at).Put(t.Context(), "/em/e", `return { scope = { "/e/" }, operations = { { op = "read", key = "/e/a" } }, read = function() return 1 end }`)
	require.NoError(t, err)

	shown := slices.Concat(described(s.metrics.Registry), described(executors), typed(page(t, "http://"+at+"/metrics")),
		typed(sidecarPage(t, "--endpoints="+at, "--cache=/a/")), typed(sidecarPage(t, "--compose="+composition)))
	exists, documented := map[string]bool{}, map[string]bool{}
	for _, name := range shown {
		exists[name] = true
	}
	require.Greater(t, len(exists), 80)
	for _, file := range []string{"operations", "extensions", "security", "sidecar", "composition", "versions"} {
		text, err := os.ReadFile("../../docs/" + file + ".md")
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			for _, name := range named(line) {
				documented[name] = true
				if !exists[name] {
					t.Errorf("docs/%s.md: there is no metric %s", file, name)
				}
			}
		}
	}
	for name := range exists {
		if !documented[name] {
			t.Errorf("no document has the metric %s", name)
		}
	}
}

// named are the metrics in a line of a document.
func named(line string) (all []string) {
	for _, at := range ownMetric.FindAllStringIndex(line, -1) {
		if rest := line[at[1]:]; !strings.HasPrefix(rest, "_*") {
			all = append(all, line[at[0]:at[1]])
		}
	}
	if family := familyOfRow.FindStringSubmatch(line); family != nil && strings.HasPrefix(line, "|") {
		for _, m := range spanOfMetric.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(m[1], "stoa_") {
				all = append(all, family[1]+m[1])
			}
		}
	}
	return all
}

// described are the metrics that collectors have, also without a series.
func described(r *prometheus.Registry) (names []string) {
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		if name, ok := strings.CutPrefix(d.String(), `Desc{fqName: "stoa_`); ok {
			name, _, _ = strings.Cut(name, `"`)
			names = append(names, "stoa_"+name)
		}
	}
	return names
}

// typed are the metrics of a page.
func typed(page string) (names []string) {
	for _, m := range typeOfMetric.FindAllStringSubmatch(page, -1) {
		names = append(names, m[1])
	}
	return names
}

// sidecarPage is /metrics of a sidecar.
func sidecarPage(t *testing.T, args ...string) string {
	t.Helper()
	cfg, err := parseSidecar(append(args, "--listen-client-urls=http://127.0.0.1:0"), nil, io.Discard)
	require.NoError(t, err)
	ports, err := serve.Listen("listen-client-urls", cfg.listen, transport.SocketOpts{})
	require.NoError(t, err)
	s, err := cfg.server(zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, s.Serve(ports, nil))
	defer s.Stop(t.Context())
	at := "http://" + ports[0].Addr().String()
	page(t, at+"/health")
	page(t, at+"/readyz")
	return page(t, at+"/metrics")
}
