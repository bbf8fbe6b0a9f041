package dashboards

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// etcdModule has the mixin. It is the latest in the Go proxy that has its directory.
const etcdModule = "go.etcd.io/etcd/v3@v3.6.8"

var promql = parser.NewParser(parser.Options{})

// expression is one of a rule or a dashboard.
type expression struct{ in, text string }

// source is rules and dashboards that belong together.
type source struct {
	rulesFile   string
	rules       *rulefmt.RuleGroups
	expressions []expression
}

func (s *source) addRules(t *testing.T, file string) {
	t.Helper()
	rules, errs := rulefmt.ParseFile(file, false, model.LegacyValidation, promql, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	s.rulesFile, s.rules = file, rules
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			s.expressions = append(s.expressions, expression{g.Name + " " + r.Alert + r.Record, r.Expr})
		}
	}
}

// addDashboard adds all that stands under "expr" in a dashboard.
func (s *source) addDashboard(t *testing.T, name string, text []byte) {
	t.Helper()
	var d any
	require.NoError(t, json.Unmarshal(text, &d))
	before := len(s.expressions)
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if e, ok := v["expr"].(string); ok {
				s.expressions = append(s.expressions, expression{name, e})
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(d)
	require.Greater(t, len(s.expressions), before, "%s has no expressions", name)
}

// ours is what deploy has.
func ours(t *testing.T) *source {
	t.Helper()
	s := &source{}
	file, err := filepath.Abs("../../deploy/prometheus/stoa.rules.yml")
	require.NoError(t, err)
	s.addRules(t, file)
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		s.addDashboard(t, filepath.Base(f), text)
	}
	return s
}

// grafonnet stands in for the jsonnet library that the mixin's newer dashboard is made with, which
// isn't in the Go proxy. It keeps the expressions.
const grafonnet = `{ query: { prometheus: { new(datasource, expr): { expr: expr }, withLegendFormat(format): {} } } }`

type importer struct{ jsonnet.FileImporter }

func (i *importer) Import(from, path string) (jsonnet.Contents, string, error) {
	if filepath.Base(path) == "g.libsonnet" {
		return stub, "grafonnet", nil
	}
	return i.FileImporter.Import(from, path)
}

var stub = jsonnet.MakeContents(grafonnet)

// mixin is etcd's.
func mixin(t *testing.T) *source {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", etcdModule).Output()
	require.NoError(t, err, "%s", out)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	vm := jsonnet.MakeVM()
	vm.Importer(&importer{jsonnet.FileImporter{JPaths: []string{filepath.Join(module.Dir, "contrib", "mixin")}}})
	evaluate := func(snippet string) []byte {
		text, err := vm.EvaluateAnonymousSnippet(t.Name(), snippet)
		require.NoError(t, err)
		return []byte(text)
	}
	s := &source{}
	file := filepath.Join(t.TempDir(), "mixin.rules.yml")
	require.NoError(t, os.WriteFile(file, evaluate(`(import 'mixin.libsonnet').prometheusAlerts`), 0o600))
	s.addRules(t, file)
	s.addDashboard(t, "mixin for Grafana 7", evaluate(`((import 'mixin.libsonnet') + { _config+:: { grafana7x: true } }).grafanaDashboards`))
	s.addDashboard(t, "mixin", evaluate(`(import 'dashboards/targets.libsonnet')({ datasource: { name: 'datasource' } }, (import 'config.libsonnet')._config)`))
	return s
}

// metrics are the names in the expressions, without those that rules record and those that
// Prometheus adds.
func (s *source) metrics(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, e := range s.expressions {
		tree, err := promql.ParseExpr(strings.ReplaceAll(e.text, "$__rate_interval", "5m"))
		require.NoError(t, err, "%s: %s", e.in, e.text)
		parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				names[v.Name] = e.in
			}
			return nil
		})
	}
	for _, g := range s.rules.Groups {
		for _, r := range g.Rules {
			delete(names, r.Record)
		}
	}
	delete(names, "up")
	return names
}
