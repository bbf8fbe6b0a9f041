package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

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
		if inTwo(r) {
			return asked(r.Success[0].GetRequestRange()) + ", " + asked(r.Success[1].GetRequestRange())
		}
		return fmt.Sprintf("txn of %d on %q", len(r.Success), r.Compare[0].Key)
	case *pb.LeaseRevokeRequest:
		return fmt.Sprintf("revoke %x", r.ID)
	case *pb.LeaseTimeToLiveRequest:
		return fmt.Sprintf("time to live of %x", r.ID)
	}
	return fmt.Sprintf("%T", m)
}
