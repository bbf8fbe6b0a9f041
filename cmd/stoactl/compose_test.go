package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/compose"
)

func TestCompositionFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/compose/files", func(t *testing.T, d *datadriven.TestData) string {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(path, []byte(d.Input), 0o600))
		cfg, err := readComposition(path, zap.NewNop())
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
		out.WriteByte('\n')
	}
	return out.String()
}

func TestClustersThatHoldARange(t *testing.T) {
	c := composition{routes: []compose.Route{
		{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/eu/local/", Cluster: "local"}, {Prefix: "/us/", Cluster: "us"}, {Prefix: "", Cluster: "rest"},
	}}
	for _, tc := range []struct {
		read clientv3.Op
		want string
	}{
		{clientv3.OpGet("/eu/a"), "eu"},
		{clientv3.OpGet("/eu/local/a"), "local"},
		{clientv3.OpGet("/x"), "rest"},
		{clientv3.OpGet("/us/", clientv3.WithPrefix()), "us"},
		{clientv3.OpGet("/eu/", clientv3.WithPrefix()), "eu local"},
		{clientv3.OpGet("/eu/local/", clientv3.WithPrefix()), "local"},
		{clientv3.OpGet("/eu/m", clientv3.WithRange("/eu/n")), "eu"},
		{clientv3.OpGet("/eu/z", clientv3.WithRange("/us/b")), "eu us rest"},
		{clientv3.OpGet("/us/z", clientv3.WithFromKey()), "us rest"},
		{clientv3.OpGet("", clientv3.WithPrefix()), "eu local us rest"},
	} {
		require.Equal(t, tc.want, strings.Join(c.holding(tc.read), " "), "%s to %s", tc.read.KeyBytes(), tc.read.RangeBytes())
	}
}
