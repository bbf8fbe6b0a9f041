package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// step is a command of the README with its documented output.
type step struct {
	line    int
	command string
	prints  string
	waits   bool // in a second terminal, until what it waits for happens
}

// TestRecipesFollowTheirReadme runs the console blocks of extensions/README.md in
// one shell, against an empty cluster.
func TestRecipesFollowTheirReadme(t *testing.T) {
	needExtensions(t)
	dir, err := filepath.Abs("../../extensions")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	steps := consoleSteps(string(text))
	require.Greater(t, len(steps), 50)
	for _, s := range []shape{{1, 2}, {3, 2}} {
		t.Run(s.String(), func(t *testing.T) {
			c := process.StartT(t, process.Spec{Nodes: s.nodes, Partitions: s.parts})
			e := newEnv(t, s, c)
			sh := e.shell(dir)
			e.follow(steps, sh)
		})
	}
}

// follow runs commands one after the other and wants each to print what it should.
func (e *env) follow(steps []step, sh *shell) {
	t := e.t
	waiting := map[step]string{}
	for _, s := range steps {
		e.waitForMoves() // moves take revisions, and these are part of the output
		if !s.waits {
			require.Equalf(t, s.prints, sh.run(s.command), "line %d: %s", s.line, s.command)
			continue
		}
		rev := e.get("x").Header.Revision
		out := filepath.Join(t.TempDir(), fmt.Sprint(s.line))
		sh.run(fmt.Sprintf("( %s ) > %s 2>&1 &", s.command, out))
		// Every command that waits leaves a key behind by which it is known.
		require.Eventuallyf(t, func() bool { return e.get("x").Header.Revision > rev }, time.Minute, 10*time.Millisecond,
			"line %d: %s", s.line, s.command)
		waiting[s] = out
	}
	for s, out := range waiting {
		require.Eventuallyf(t, func() bool {
			got, err := os.ReadFile(out)
			require.NoError(t, err)
			return strings.HasPrefix(string(got), s.prints)
		}, 10*time.Second, 20*time.Millisecond, "line %d: %s\nwants %q", s.line, s.command, s.prints)
	}
}

// waitForMoves waits until the keys are in the partitions of the registered
// extensions' scopes.
func (e *env) waitForMoves() {
	require.Eventually(e.t, func() bool {
		for _, s := range e.Servers {
			moving, err := s.KeysMoving(e.ctx)
			require.NoError(e.t, err)
			if moving {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}

// consoleSteps finds the commands in the console blocks of a text in Markdown.
func consoleSteps(text string) []step {
	var steps []step
	inside := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = line == "```console"
			continue
		}
		command, own := strings.CutPrefix(line, "$ ")
		other, waits := strings.CutPrefix(line, "2$ ")
		switch {
		case !inside:
		case own:
			steps = append(steps, step{line: i + 1, command: command})
		case waits:
			steps = append(steps, step{line: i + 1, command: other, waits: true})
		default:
			steps[len(steps)-1].prints += line + "\n"
		}
	}
	return steps
}

// shell is a bash that keeps its variables from one command to the next.
type shell struct {
	t   *testing.T
	in  *os.File
	out *lockedBuffer
}

func (e *env) shell(dir string) *shell {
	e.t.Helper()
	etcdctl, err := process.Peer("etcdctl")
	require.NoError(e.t, err)
	cmd := exec.Command("bash")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(etcdctl)+":"+os.Getenv("PATH"), "ETCDCTL_ENDPOINTS="+strings.Join(e.Endpoints(), ","))
	r, w, err := os.Pipe()
	require.NoError(e.t, err)
	s := &shell{t: e.t, in: w, out: &lockedBuffer{}}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, s.out, s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it runs in the background
	require.NoError(e.t, cmd.Start())
	r.Close()
	e.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		w.Close()
	})
	return s
}

const mark = "end-of-command"

// run executes a command and returns what it has printed.
func (s *shell) run(command string) string {
	s.t.Helper()
	before := len(s.out.String())
	_, err := fmt.Fprintf(s.in, "%s\necho %s\n", command, mark)
	require.NoError(s.t, err)
	var said string
	require.Eventuallyf(s.t, func() bool {
		said = s.out.String()[before:]
		return strings.HasSuffix(said, mark+"\n")
	}, 20*time.Second, 2*time.Millisecond, "%s", command)
	return strings.TrimSuffix(said, mark+"\n")
}
