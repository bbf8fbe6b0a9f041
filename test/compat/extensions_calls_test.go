package compat

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

const logged = `return {
  scope = { "/logged/" },
  operations = { { op = "put", prefix = "/logged/" } },
  put = function(r)
    log("value", r.value)
    if r.value == "bad" then
      error("a bad value")
    end
    put(r.key, r.value)
  end,
}
`

// TestLogsAndProfilesOfExtensions: stoactl shows on each server the log of the calls that
// all of them execute, and a profile on one of them, which changes nothing.
func TestLogsAndProfilesOfExtensions(t *testing.T) {
	needExtensions(t)
	dir := t.TempDir()
	require.NoError(t, process.LinkStoactl(dir))
	source := filepath.Join(dir, "logged.lua")
	require.NoError(t, os.WriteFile(source, []byte(logged), 0o600))
	for _, s := range []shape{{1, 2}, {3, 2}} {
		t.Run(s.String(), func(t *testing.T) {
			e := newEnv(t, s, process.StartT(t, process.Spec{Nodes: s.nodes, Partitions: s.parts}))
			x := &observed{e, filepath.Join(dir, "stoactl")}
			x.must(0, "register", "logged", source)
			x.logs()
			x.profiles()
			x.removed()
		})
	}
}

// observed runs stoactl on an extension.
type observed struct {
	*env
	stoactl string
}

func (x *observed) command(server int, args ...string) *exec.Cmd {
	all := append([]string{"--endpoints", x.Endpoints()[server], "extension"}, args...)
	return exec.CommandContext(x.ctx, x.stoactl, all...)
}

func (x *observed) must(server int, args ...string) string {
	x.t.Helper()
	out, err := x.command(server, args...).CombinedOutput()
	require.NoError(x.t, err, "%s", out)
	return string(out)
}

// logs: the lines of all calls, on every server, also of one that failed.
func (x *observed) logs() {
	p, err := x.cli.Put(x.ctx, "/logged/a", "one")
	require.NoError(x.t, err)
	_, err = x.cli.Put(x.ctx, "/logged/a", "bad")
	require.ErrorContains(x.t, err, "a bad value")
	for i := range x.nodes {
		var out string
		require.Eventually(x.t, func() bool {
			out = x.must(i, "logs", "logged")
			return strings.Count(out, "\n") == 3
		}, 30*time.Second, 50*time.Millisecond)
		rev := strconv.FormatInt(p.Header.Revision, 10)
		require.Regexp(x.t, `^\S+Z rev `+rev+` put /logged/a: value one\n`+
			`\S+Z rev \d+ put /logged/a: value bad\n`+
			`\S+Z rev \d+ put /logged/a failed: stoa: extension "logged": line 7, column 7: a bad value\n$`, out)
	}
	out, err := x.command(0, "logs", "none").CombinedOutput()
	require.Error(x.t, err)
	require.Contains(x.t, string(out), `there is no extension "none"`)
}

// profiles: on the last server, of calls at all servers. Afterwards all have the same keys.
func (x *observed) profiles() {
	last := x.nodes - 1
	profile := x.command(last, "profile", "logged", "--duration", "3s", "-w", "json")
	var out strings.Builder
	profile.Stdout = &out
	require.NoError(x.t, profile.Start())
	done := make(chan error, 1)
	go func() { done <- profile.Wait() }()
	var rev int64
	for running := true; running; {
		for i := range x.nodes {
			p, err := x.named("", x.Endpoints()[i]).Put(x.ctx, "/logged/a", "two")
			require.NoError(x.t, err)
			rev = p.Header.Revision
		}
		select {
		case err := <-done:
			require.NoError(x.t, err)
			running = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	var got struct {
		Calls, Steps int64
		Lines        []struct{ Line, Calls, Steps int64 }
	}
	require.NoError(x.t, json.Unmarshal([]byte(out.String()), &got), out.String())
	require.Positive(x.t, got.Calls)
	require.Len(x.t, got.Lines, 4, "of the lines 4, 5, 6 and 9")
	steps := int64(0)
	for _, l := range got.Lines {
		require.Equal(x.t, got.Calls, l.Calls)
		steps += l.Steps
	}
	require.Equal(x.t, steps, got.Steps)
	require.Zero(x.t, got.Steps%got.Calls, "all calls took the same steps")
	want, err := x.cli.HashKV(x.ctx, x.Endpoints()[last], rev)
	require.NoError(x.t, err)
	for _, endpoint := range x.Endpoints() {
		require.Eventually(x.t, func() bool { // it may lag
			h, err := x.cli.HashKV(x.ctx, endpoint, rev)
			return err == nil && want.Hash == h.Hash
		}, 30*time.Second, 50*time.Millisecond)
	}
	require.Contains(x.t, x.must(last, "profile", "logged", "--duration", "10ms"), `log("value", r.value)`)
}

// removed: a reader that follows the log gets the calls to come, and is told that the
// extension is removed.
func (x *observed) removed() {
	follow := x.command(0, "logs", "logged", "--follow")
	out, err := follow.StdoutPipe()
	require.NoError(x.t, err)
	var errs strings.Builder
	follow.Stderr = &errs
	require.NoError(x.t, follow.Start())
	lines := bufio.NewScanner(out)
	require.True(x.t, lines.Scan()) // it follows now
	_, err = x.cli.Put(x.ctx, "/logged/a", "last")
	require.NoError(x.t, err)
	for !strings.HasSuffix(lines.Text(), "put /logged/a: value last") {
		require.True(x.t, lines.Scan(), errs.String())
	}
	_, err = x.cli.Delete(x.ctx, "/em/logged")
	require.NoError(x.t, err)
	require.False(x.t, lines.Scan(), lines.Text())
	require.Error(x.t, follow.Wait())
	require.Contains(x.t, errs.String(), `extension "logged" was removed`)
}
