package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// unreached: gRPC has several error texts for an unreachable server.
var unreached = regexp.MustCompile(`(cluster "cut": ).*?( \(whether it took effect is unknown\))?\n`)

// The stories in testdata/compose/commands: every line is called on two
// clusters that answer as stoactl_test.go says, "eu" with all keys of /eu/ and
// "us" with those of /us/, stripped of it; there is none behind "cut". The
// requests that they received come first.
func TestComposedCommands(t *testing.T) {
	eu, euAddr := startFake(t)
	us, usAddr := startFake(t)
	path := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`
clusters:
  eu:  {endpoints: [%q], kind: etcd}
  us:  {endpoints: [%q], kind: etcd}
  cut: {endpoints: ["127.0.0.1:1"], kind: etcd}
routes:
- {prefix: /eu/, cluster: eu}
- {prefix: /us/, cluster: us, strip: true}
- {prefix: /zz/, cluster: cut}
`, euAddr, usAddr)), 0o600))
	env := []string{"STOACTL_COMPOSE=" + path, "STOACTL_COMMAND_TIMEOUT=300ms", "STOACTL_DIAL_TIMEOUT=300ms"}
	datadriven.RunTest(t, "testdata/compose/commands", func(t *testing.T, d *datadriven.TestData) string {
		eu.last, us.last = nil, nil
		command, stdin, _ := strings.Cut(d.Input, "\n")
		args, err := words(command)
		require.NoError(t, err)
		began := time.Now()
		code, out, errs := call(stdin+"\n\n\n", env, args...)
		require.Less(t, time.Since(began), 3*time.Second)
		var b strings.Builder
		for _, f := range []struct {
			name   string
			server *fakeServer
		}{{"eu", eu}, {"us", us}} {
			if f.server.last != nil {
				fmt.Fprintf(&b, "(%s: %s)\n", f.name, asked(f.server.last))
			}
		}
		fmt.Fprint(&b, out, unreached.ReplaceAllString(errs, "$1(why)$2\n"))
		if code != 0 {
			fmt.Fprintf(&b, "exit %d\n", code)
		}
		return b.String()
	})
}

// asked formats a request briefly.
func asked(m any) string {
	switch r := m.(type) {
	case *pb.RangeRequest:
		kind := "read"
		if r.Serializable {
			kind = "local read"
		}
		return fmt.Sprintf("%s %q %q", kind, r.Key, r.RangeEnd)
	case *pb.PutRequest:
		return fmt.Sprintf("put %q lease %x", r.Key, r.Lease)
	case *pb.DeleteRangeRequest:
		return fmt.Sprintf("delete %q %q", r.Key, r.RangeEnd)
	case *pb.TxnRequest:
		return fmt.Sprintf("txn of %d on %q", len(r.Success), r.Compare[0].Key)
	case *pb.LeaseRevokeRequest:
		return fmt.Sprintf("revoke %x", r.ID)
	case *pb.LeaseTimeToLiveRequest:
		return fmt.Sprintf("time to live of %x", r.ID)
	}
	return fmt.Sprintf("%T", m)
}
