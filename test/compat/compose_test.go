package compat

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// composed is stoactl on a composition: the keys of /eu/ live in a cluster of stoa,
// those of /us/ in one of etcd, without that prefix.
type composed struct {
	t      *testing.T
	dir    string // of stoactl and compose.yaml
	eu, us *process.Cluster
}

func newComposed(t *testing.T) *composed {
	t.Helper()
	stoa, err := process.Choose("stoa")
	require.NoError(t, err)
	etcd, err := process.Choose("etcd")
	require.NoError(t, err)
	c := &composed{
		t: t, dir: t.TempDir(),
		eu: process.StartT(t, process.Spec{Binary: stoa, Partitions: 2}),
		us: process.StartT(t, process.Spec{Binary: etcd}),
	}
	require.NoError(t, process.LinkStoactl(c.dir))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "compose.yaml"), fmt.Appendf(nil, `
clusters:
  eu: {endpoints: [%q]}
  us: {endpoints: [%q]}
routes:
- {prefix: /eu/, cluster: eu}
- {prefix: /us/, cluster: us, strip: true}
`, c.eu.Servers[0].ClientURL, c.us.Servers[0].ClientURL), 0o600))
	return c
}

func (c *composed) command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.dir, "stoactl"), append([]string{"--compose", filepath.Join(c.dir, "compose.yaml")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

func (c *composed) try(stdin string, args ...string) (string, error) {
	out, err := c.command(c.t.Context(), stdin, args...).CombinedOutput()
	return string(out), err
}

func (c *composed) run(args ...string) string {
	c.t.Helper()
	out, err := c.try("", args...)
	require.NoError(c.t, err, "%v:\n%s", args, out)
	return out
}

func TestStoactlComposes(t *testing.T) {
	c := newComposed(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *composed)
	}{{"as documented", composedAsDocumented}, {"keys", composedKeys}, {"leases", composedLeases}, {"watches", composedWatches}, {"mirrors", composedMirrors}, {"commands and transactions", composedCommands}, {"a lost cluster", composedAroundALostCluster}} {
		t.Run(part.name, func(t *testing.T) {
			own := *c
			own.t = t
			part.test(t, &own)
			if !t.Failed() {
				c.run("del", "--prefix", "/eu/")
			}
		})
	}
}

// composedAsDocumented runs the console block of docs/composition.md on
// examples/compose.yaml, at the addresses that the clusters have here.
func composedAsDocumented(t *testing.T, c *composed) {
	example, err := os.ReadFile("../../examples/compose.yaml")
	require.NoError(t, err)
	here := strings.NewReplacer("http://127.0.0.1:12379", c.eu.Servers[0].ClientURL, "http://127.0.0.1:22379", c.us.Servers[0].ClientURL)
	path := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(path, []byte(here.Replace(string(example))), 0o600))
	text, err := os.ReadFile("../../docs/composition.md")
	require.NoError(t, err)
	steps := consoleSteps(string(text))
	require.NotEmpty(t, steps)
	for _, s := range steps {
		args, ok := strings.CutPrefix(s.command, "stoactl --compose examples/compose.yaml ")
		require.True(t, ok, s.command)
		out, err := exec.Command(filepath.Join(c.dir, "stoactl"), append([]string{"--compose", path}, strings.Fields(args)...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, s.prints, string(out), "line %d: %s", s.line, s.command)
	}
}

func composedKeys(t *testing.T, c *composed) {
	require.Equal(t, "OK\n", c.run("put", "/eu/a", "1"))
	require.Equal(t, "OK\n", c.run("put", "/us/a", "2"))
	require.Equal(t, "/eu/a\n1\n/us/a\n2\n", c.run("get", "--prefix", "/"))
	require.Equal(t, "/us/a\n2\n/eu/a\n1\n", c.run("get", "--prefix", "/", "--order", "DESCEND"))
	there := newEnv(t, shape{1, 1}, c.us)
	require.Equal(t, []string{"/us/a", "2"}, strings.Fields(c.run("get", "/us/a")))
	require.Equal(t, "a\n2", there.etcdctl("get", "a"), "stripped of its prefix")

	out, err := c.try("value(\"/us/a\") = \"2\"\n\nput /us/b 3\nget /us/a\n\n\n", "txn")
	require.NoError(t, err, out)
	require.Equal(t, "SUCCESS\n\nOK\n\n/us/a\n2\n", out)
	out, err = c.try("value(\"/us/a\") = \"2\"\n\nput /eu/b 3\n\n\n", "txn")
	require.Error(t, err)
	require.Contains(t, out, `"/us/" (cluster us) and "/eu/" (cluster eu)`)
	require.Equal(t, "2\n", c.run("del", "--prefix", "/us/"))
	require.Equal(t, "1\n", c.run("del", "/eu/a"))
	out, err = c.try("", "get", "/as/a")
	require.Error(t, err)
	require.Contains(t, out, `no route for the key: "/as/a"`)
}

// A prefix of one cluster is mirrored in the other, until the worker is interrupted.
func composedMirrors(t *testing.T, c *composed) {
	path := filepath.Join(t.TempDir(), "mirrors.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
clusters:
  eu: {endpoints: [%q]}
  us: {endpoints: [%q]}
routes:
- {prefix: /all/, cluster: eu, mirrors: [us]}
local: us
`, c.eu.Servers[0].ClientURL, c.us.Servers[0].ClientURL), 0o600))
	run := func(args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(c.dir, "stoactl"), append([]string{"--compose", path}, args...)...).CombinedOutput()
		return string(out), err
	}
	out, err := run("put", "/all/a", "1")
	require.NoError(t, err, out)
	out, err = run("mirror", "status")
	require.NoError(t, err, out)
	require.Regexp(t, `^/all/, eu, us, none, false, 0, \d+, 0\.0s, \n$`, out)

	worker := exec.Command(filepath.Join(c.dir, "stoactl"), "--compose", path, "mirror", "run", "--target", "us", "--metrics-listen", "127.0.0.1:0")
	errs, err := worker.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	defer worker.Process.Kill()
	said := bufio.NewReader(errs)
	line, err := said.ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "metrics at ")
	require.True(t, ok, line)
	line, err = said.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "\"/all/\" in us: copying from eu\n", line)
	require.Eventually(t, func() bool {
		out, err = run("mirror", "status")
		return err == nil && regexp.MustCompile(`^/all/, eu, us, at, true, \d+, 0, 0\.0s, .+\n$`).MatchString(out)
	}, 30*time.Second, 100*time.Millisecond, "%s", out)
	require.Eventually(t, func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return err == nil && strings.Contains(string(text), `stoa_mirror_behind_revisions{home="eu",prefix="/all/",target="us"} 0`)
	}, 30*time.Second, 100*time.Millisecond)
	require.NoError(t, worker.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(said)
	require.NoError(t, err)
	require.NoError(t, worker.Wait(), "%s", rest)

	there := newEnv(t, shape{1, 1}, c.us)
	require.Equal(t, "/all/a", strings.TrimSpace(there.etcdctl("get", "--prefix", "--keys-only", "/all/")))
	there.etcdctl("del", "--prefix", "/stoa/mirror/mark/")
	out, err = run("mirror", "run")
	require.Error(t, err)
	require.Contains(t, out, "the target has keys already")
	out, err = run("mirror", "run", "--target", "mars")
	require.Error(t, err)
	require.Contains(t, out, "mars")
	there.etcdctl("del", "--prefix", "/all/")
	out, err = run("del", "--prefix", "/all/")
	require.NoError(t, err, out)
}

// A command waits in its queue until an executor runs; a transaction has keys of both clusters.
func composedCommands(t *testing.T, c *composed) {
	path := filepath.Join(t.TempDir(), "commands.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
clusters:
  eu: {endpoints: [%q]}
  us: {endpoints: [%q]}
routes:
- {prefix: /eu/, cluster: eu}
- {prefix: /us/, cluster: us}
- {prefix: /eu/t/, cluster: eu, transactions: true}
- {prefix: /us/t/, cluster: us, transactions: true}
`, c.eu.Servers[0].ClientURL, c.us.Servers[0].ClientURL), 0o600))
	run := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(c.dir, "stoactl"), append([]string{"--compose", path}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("put /eu/c 1\nput /us/c 1\n", "commands", "send", "--set", "eu,us", "--taken")
	require.NoError(t, err, out)
	require.Equal(t, "OK\n", out)
	out, err = run("", "commands", "status")
	require.NoError(t, err, out)
	require.Regexp(t, `^eu,us, eu, 1, \d, 0, 0, \neu,us, us, 1, \d, 0, 0, \n$`, out)
	out, err = run("get /eu/c\n", "commands", "send")
	require.Error(t, err)
	require.Contains(t, out, "only puts and deletions")

	executor := exec.Command(filepath.Join(c.dir, "stoactl"), "--compose", path, "commands", "run", "--metrics-listen", "127.0.0.1:0")
	require.NoError(t, executor.Start())
	defer executor.Process.Kill()
	out, err = run("del /eu/c\nput /us/c 2", "commands", "send")
	require.NoError(t, err, out)
	require.Equal(t, "OK\n", out)
	out, err = run("", "get", "--prefix", "/")
	require.NoError(t, err, out)
	require.Equal(t, "/us/c\n2\n", out)
	require.NoError(t, executor.Process.Signal(os.Interrupt))
	require.NoError(t, executor.Wait())

	out, err = run("value(\"/eu/t/a\") = \"\"\n\nput /eu/t/a 1\nput /us/t/a 2\n\nput /us/t/a 3\nget /eu/t/a\n\n", "txn")
	require.NoError(t, err, out)
	require.Equal(t, "FAILURE\n\nOK\n\n", out)
	out, err = run("value(\"/us/t/a\") = \"3\"\n\nput /eu/t/a 1\nput /us/t/a 2\n\n\n", "txn")
	require.NoError(t, err, out)
	require.Equal(t, "SUCCESS\n\nOK\n\nOK\n", out)
	out, err = run("", "get", "--prefix", "/eu/t/")
	require.NoError(t, err, out)
	require.Equal(t, "/eu/t/a\n1\n", out)
	for _, key := range []string{"/eu/t/a", "/us/t/a", "/us/c"} {
		_, err = run("", "del", key)
		require.NoError(t, err)
	}
}

// A lease is one in both clusters.
func composedLeases(t *testing.T, c *composed) {
	granted := regexp.MustCompile(`^lease ([0-9a-f]{16}) granted with TTL\(60s\)\n$`).FindStringSubmatch(c.run("lease", "grant", "60"))
	require.NotNil(t, granted)
	id := granted[1]
	c.run("put", "--lease", id, "/eu/a", "1")
	c.run("put", "--lease", id, "/us/a", "1")
	require.Equal(t, "found 1 leases\n"+id+"\n", c.run("lease", "list"))
	require.Contains(t, c.run("lease", "timetolive", "--keys", id), "attached keys([/eu/a /us/a])")
	require.Equal(t, "lease "+id+" keepalived with TTL(60)\n", c.run("lease", "keep-alive", "--once", id))
	c.run("lease", "revoke", id)
	require.Empty(t, c.run("get", "--prefix", "/"))
	require.Equal(t, "lease "+id+" already expired\n", c.run("lease", "timetolive", id))
}

// A watch over both clusters shows the events of each in its order.
func composedWatches(t *testing.T, c *composed) {
	cmd := c.command(t.Context(), "", "watch", "--prefix", "/")
	var shown, errs lockedBuffer
	cmd.Stdout, cmd.Stderr = &shown, &errs
	require.NoError(t, cmd.Start())
	seen := func(text string) func() bool { return func() bool { return strings.Contains(shown.String(), text) } }
	require.Eventually(t, func() bool { // until both watches are open
		c.run("put", "/eu/open", "")
		c.run("put", "/us/open", "")
		return seen("/eu/open")() && seen("/us/open")()
	}, time.Minute, 50*time.Millisecond)
	for i := range 3 {
		c.run("put", "/eu/a", fmt.Sprint(i))
		c.run("put", "/us/a", fmt.Sprint(i))
	}
	c.run("del", "/us/a")
	require.Eventually(t, seen("DELETE\n/us/a\n"), time.Minute, 20*time.Millisecond)
	require.Eventually(t, seen("PUT\n/eu/a\n2\n"), time.Minute, 20*time.Millisecond)
	for _, key := range []string{"/eu/a", "/us/a"} {
		var values []string
		for _, m := range regexp.MustCompile(`PUT\n`+key+`\n(\d)\n`).FindAllStringSubmatch(shown.String(), -1) {
			values = append(values, m[1])
		}
		require.Equal(t, []string{"0", "1", "2"}, values, key)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.ErrorContains(t, cmd.Wait(), "interrupt", errs.String())
	require.Empty(t, errs.String())
}

// Only requests to a stopped cluster fail, with an error that names it.
func composedAroundALostCluster(t *testing.T, c *composed) {
	c.run("put", "/us/a", "1")
	require.NoError(t, c.us.Servers[0].Kill())
	require.Equal(t, "OK\n", c.run("put", "/eu/a", "1"))
	require.Equal(t, "/eu/a\n1\n", c.run("get", "/eu/a"))
	for _, args := range [][]string{{"get", "/us/a"}, {"put", "/us/a", "2"}, {"get", "--prefix", "/"}} {
		began := time.Now()
		out, err := c.try("", append(args, "--command-timeout=500ms", "--dial-timeout=300ms")...)
		require.Error(t, err, "%v", args)
		require.Contains(t, out, `cluster "us"`, "%v", args)
		require.Less(t, time.Since(began), 4*time.Second, "%v: %s", args, out)
		require.NotContains(t, out, "panic")
	}
	out, err := c.try("", "lease", "grant", "60", "--command-timeout=500ms", "--dial-timeout=300ms")
	require.Error(t, err, "a lease is one in all clusters")
	require.Contains(t, out, `cluster "us"`)
}
