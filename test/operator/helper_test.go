package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// cluster starts a cluster of three, with some keys.
func cluster(t *testing.T, args ...string) *process.Cluster {
	t.Helper()
	requireStoa(t)
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: args})
	put(t, c.Servers[0], "first", 20)
	return c
}

func requireStoa(t *testing.T) {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	if !bin.Stoa {
		t.Skip("asks more than etcd promises")
	}
}

func client(t *testing.T, s *process.Server) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

// put writes n keys, trying again while a leader is being elected.
func put(t *testing.T, s *process.Server, name string, n int) {
	t.Helper()
	cli := client(t, s)
	for i := range n {
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := cli.Put(ctx, fmt.Sprintf("/%s/%d/k", name, i), "v")
			return err == nil
		}, 30*time.Second, 50*time.Millisecond)
	}
}

// requireKeys reads back what put wrote, strictly.
func requireKeys(t *testing.T, s *process.Server, name string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := client(t, s).Get(ctx, "/"+name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.EqualValues(t, n, resp.Count)
}

// said is what a server has logged since its log had so many bytes, without the command
// line that the test noted.
func said(s *process.Server, from int) string {
	log := s.LogTail(1 << 30)
	log = log[min(from, len(log)):]
	if strings.HasPrefix(log, "---") {
		_, log, _ = strings.Cut(log, "\n")
	}
	return log
}

func logged(s *process.Server) int {
	text, err := os.ReadFile(s.LogFile)
	if err != nil {
		return 0
	}
	return len(text)
}

// refuses starts a server that must end by itself, and say why in one line.
func refuses(t *testing.T, s *process.Server, says ...string) {
	t.Helper()
	from := logged(s)
	require.NoError(t, s.Start())
	ends(t, s, from, says...)
}

// ends waits for a server that must end by itself, and say why in one line.
func ends(t *testing.T, s *process.Server, from int, says ...string) {
	t.Helper()
	code, err := s.Wait(20 * time.Second)
	require.NoError(t, err)
	require.NotZero(t, code)
	log := said(s, from)
	requireNoTrace(t, log)
	var errors []string
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, `"level":"error"`) {
			errors = append(errors, line)
		}
	}
	require.Len(t, errors, 1, "%s", log)
	for _, say := range says {
		require.Contains(t, errors[0], say)
	}
}

// requireNoTrace wants a log of nothing but log lines.
func requireNoTrace(t *testing.T, log string) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(log), "\n") {
		if strings.HasPrefix(line, "---") || line == "" {
			continue
		}
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), "%s", line)
		require.NotContains(t, fields, "stacktrace", "%s", line)
		require.NotContains(t, []any{"panic", "fatal", "dpanic"}, fields["level"], "%s", line)
	}
}

// copyDir copies a directory, as cp -a does.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("cp", "-a", from, to)
	cmd.Stderr = &out
	require.NoError(t, cmd.Run(), "%s", &out)
}

func ready(t *testing.T, s *process.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, s.WaitReady(ctx))
}

// notReady gives a server a while in which it must not become ready.
func notReady(t *testing.T, s *process.Server, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.ErrorIs(t, s.WaitReady(ctx), context.DeadlineExceeded)
}

func awaitLog(t *testing.T, s *process.Server, from int, says string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(said(s, from), says) }, 20*time.Second, 50*time.Millisecond,
		"%s doesn't say %q", s.Name, says)
}
