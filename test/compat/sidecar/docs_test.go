package sidecar

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestDocs runs the commands of docs/sidecar.md, on ports of the test.
func TestDocs(t *testing.T) {
	t.Parallel()
	root, err := process.Root()
	require.NoError(t, err)
	_, err = process.Stoactl()
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Nodes: 1})
	planned, err := c.Sidecar("docs")
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(root, "docs", "sidecar.md"))
	require.NoError(t, err)
	script := "set -e\ntrap 'kill $(jobs -p); wait' EXIT\n"
	for _, b := range block.FindAllStringSubmatch(string(doc), -1) {
		script += b[1]
	}
	socket, cache := filepath.Join(t.TempDir(), "namespace.sock"), filepath.Join(t.TempDir(), "cache.sock")
	until := func(socket string) string {
		return socket + " &\nfor i in $(seq 200); do curl -sf --unix-socket " + socket + " http://sidecar/readyz >/dev/null && break; sleep 0.1; done\n"
	}
	address := func(url string) string { return strings.TrimPrefix(url, "http://") }
	script = strings.NewReplacer(
		"127.0.0.1:23790", address(planned.ClientURL), "127.0.0.1:2379", address(c.Servers[0].ClientURL),
		"/tmp/stoa-namespace.sock &\nsleep 1\n", until(socket), "/tmp/stoa-cache.sock &\nsleep 1\n", until(cache),
		"/tmp/stoa-namespace.sock", socket, "/tmp/stoa-cache.sock", cache, "/tmp/stoa-app.sock", filepath.Join(t.TempDir(), "app.sock"),
		// The documentation waits for a moment; a slow machine may take longer.
		"sleep 1\n", "for i in $(seq 200); do curl -sf http://"+address(planned.ClientURL)+"/readyz >/dev/null && break; sleep 0.1; done\n",
	).Replace(script)
	cmd := exec.CommandContext(soon(t), "bash", "-c", script)
	cmd.Dir = root
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	require.Contains(t, string(out), "OK\n/greeting\nhello\n")
	require.Contains(t, string(out), "\ncolor\n")
	require.Contains(t, string(out), "OK\n/config/color\nblue\n")
	require.Contains(t, string(out), `stoa_sidecar_handled_total{code="OK",method="/etcdserverpb.KV/Put"} 1`)
}
