package file

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/compose"
)

func TestFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/files", func(t *testing.T, d *datadriven.TestData) string {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(path, []byte(d.Input), 0o600))
		cfg, err := Read(path, zap.NewNop())
		if err != nil {
			return strings.NewReplacer(path, "FILE", dir, "DIR").Replace(err.Error()) + "\n"
		}
		require.True(t, cfg.SpanRanges)
		return describe(cfg)
	})
}

func describe(cfg compose.Config) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cfg.Clusters)) {
		c := cfg.Clusters[name]
		fmt.Fprintf(&out, "%s: %v, near %v, kind %d", name, c.Endpoints, c.Near, c.Kind)
		if c.TLS != nil {
			out.WriteString(", TLS")
		}
		if c.Username != "" && c.Password != "" {
			fmt.Fprintf(&out, ", as %s", c.Username)
		}
		out.WriteByte('\n')
	}
	for _, r := range cfg.Routes {
		fmt.Fprintf(&out, "%q -> %s", r.Prefix, r.Cluster)
		if r.Strip {
			out.WriteString(", stripped")
		}
		if r.Transactions {
			out.WriteString(", with transactions")
		}
		if len(r.Mirrors) > 0 {
			fmt.Fprintf(&out, ", mirrored in %s", strings.Join(r.Mirrors, " and "))
		}
		out.WriteByte('\n')
	}
	if cfg.Local != "" {
		fmt.Fprintf(&out, "reading at %s\n", cfg.Local)
	}
	return out.String()
}

// The example has each setting, if only in a comment.
func TestExampleHasAllSettings(t *testing.T) {
	text, err := os.ReadFile("../../../examples/compose.yaml")
	require.NoError(t, err)
	_, err = Read("../../../examples/compose.yaml", zap.NewNop())
	require.NoError(t, err)
	for _, entry := range []any{composition{}, clusterEntry{}, routeEntry{}} {
		of := reflect.TypeOf(entry)
		for i := range of.NumField() {
			require.Regexp(t, `(?m)^[ #-]*`+of.Field(i).Tag.Get("json")+`:`, string(text))
		}
	}
}
