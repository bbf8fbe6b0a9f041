package stoactl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// tool is one of the two programs, with its server.
type tool struct {
	path   string
	server *process.Server
	// names are the names and ids in which the two servers differ.
	names *strings.Replacer
	lease string // the one that was granted last
}

// result is the result of a command.
type result struct {
	code        int
	out, errout string
}

// build returns the path of stoactl.
func build(t *testing.T) string {
	t.Helper()
	path, err := process.Stoactl()
	require.NoError(t, err)
	return path
}

// start starts a server for each program.
func start(t *testing.T) (etcdctl, stoactl *tool) {
	t.Helper()
	peer, err := process.Peer("etcdctl")
	require.NoError(t, err)
	etcdctl, stoactl = &tool{path: peer}, &tool{path: build(t)}
	for _, x := range []*tool{etcdctl, stoactl} {
		x.server = process.StartT(t, process.Spec{Partitions: 1}).Servers[0]
		x.learn(t)
	}
	return etcdctl, stoactl
}

// learn reads the ids of its server and cluster.
func (x *tool) learn(t *testing.T) {
	t.Helper()
	var members struct {
		Header struct {
			Cluster uint64 `json:"cluster_id"`
			Member  uint64 `json:"member_id"`
		} `json:"header"`
		Members []struct {
			PeerURLs []string `json:"peerURLs"`
		} `json:"members"`
	}
	r := x.run(t, command{args: "member list -w json"})
	require.Zero(t, r.code, r.errout)
	require.NoError(t, json.Unmarshal([]byte(r.out), &members), r.out)
	h := members.Header
	x.names = strings.NewReplacer(
		fmt.Sprint(h.Cluster), "CLUSTER", fmt.Sprintf("%x", h.Cluster), "CLUSTER",
		fmt.Sprint(h.Member), "MEMBER", fmt.Sprintf("%x", h.Member), "MEMBER",
		x.server.ClientURL, "CLIENT-URL", members.Members[0].PeerURLs[0], "PEER-URL")
}

// run carries out a command. With lines, it is ended once it has printed so many.
func (x *tool) run(t *testing.T, c command) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var args []string
	for _, a := range strings.Fields(c.args) {
		a = strings.NewReplacer(`""`, "", "SERVER", x.server.ClientURL, "LEASE", x.lease).Replace(a)
		args = append(args, a)
	}
	cmd := exec.CommandContext(ctx, x.path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, strings.Fields(c.env)...)
	if !strings.Contains(c.args, "--endpoints") {
		cmd.Env = append(cmd.Env, "ETCDCTL_ENDPOINTS="+x.server.ClientURL)
	}
	cmd.Stdin = strings.NewReader(c.stdin)
	out, errout := lineCount{stop: cancel, left: c.lines}, bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = &out, &errout
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) && !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	if granted := grantedLease.FindStringSubmatch(out.text(c.lines)); granted != nil {
		x.lease = granted[1]
	}
	return result{cmd.ProcessState.ExitCode(), out.text(c.lines), errout.String()}
}

var grantedLease = regexp.MustCompile(`^lease ([0-9a-f]{16}) granted`)

// lineCount keeps what is written, and stops the writer after so many lines, if any.
type lineCount struct {
	kept strings.Builder
	left int
	stop func()
}

func (l *lineCount) Write(b []byte) (int, error) {
	n, err := l.kept.Write(b)
	if l.left > 0 && strings.Count(l.kept.String(), "\n") >= l.left {
		l.stop()
	}
	return n, err
}

// text is the output, or so many lines of it.
func (l *lineCount) text(lines int) string {
	all := strings.SplitAfter(l.kept.String(), "\n")
	if lines > 0 {
		all = all[:min(lines, len(all))]
	}
	return strings.Join(all, "")
}

// both runs a command with both programs at once.
func both(t *testing.T, one, other *tool, c command) (result, result) {
	t.Helper()
	var a, b result
	var wg sync.WaitGroup
	wg.Go(func() { a = one.run(t, c) })
	wg.Go(func() { b = other.run(t, c) })
	wg.Wait()
	return a, b
}

// Fields that differ from run to run.
var (
	duration = regexp.MustCompile(`\b[0-9.]+(µs|ms|s)\b`)
	leaseHex = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	elected  = regexp.MustCompile(`(?m)^e/[0-9a-f]{1,16}$`) // keys have leases without leading zeros
	leaseID  = regexp.MustCompile(`("ID" ?: ?|"id":)[0-9]+`)
	number   = regexp.MustCompile(`[0-9]+`)
	rule     = regexp.MustCompile(`[─ ]+`)
)

// plain is an output without what differs from server to server and run to run.
func (x *tool) plain(out string, c command) string {
	if strings.Contains(c.args, "protobuf") && len(out) > 2 && int(out[1]) <= len(out)-2 {
		out = out[2+int(out[1]):] // behind the header
	}
	out = x.names.Replace(out)
	out = duration.ReplaceAllString(out, "DURATION")
	out = elected.ReplaceAllString(out, "e/LEASE")
	out = leaseHex.ReplaceAllString(out, "LEASE")
	out = leaseID.ReplaceAllString(out, "${1}LEASE")
	if strings.Contains(c.args, "endpoint status") { // sizes, indexes
		out = number.ReplaceAllString(out, "N")
	}
	if strings.Contains(c.args, "table") {
		out = rule.ReplaceAllString(out, " ")
	}
	return out
}
