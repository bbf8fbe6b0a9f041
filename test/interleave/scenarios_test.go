package interleave

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/interleave/overlay"
	"github.com/stoa-kv/stoa/test/sim/mutate"
)

var only = flag.String("scenario", "^TestInterleaved", "which tests of the packages to run")

// scenarios are the packages whose tests explore scenarios, and pointed all that get points: what a
// task can be in while it is preempted, or wait for.
var (
	scenarios = []string{"internal/watch", "internal/session/host", "internal/replica"}
	pointed   = append([]string{
		"internal/apply", "internal/check", "internal/lease", "internal/raftlog", "internal/sequencer", "internal/store",
		"internal/tenant", "internal/throttle",
	}, scenarios...)
)

// TestScenarios explores all scenarios, and has each mutation noticed by one.
func TestScenarios(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	bugs, err := mutate.Load("mutations")
	require.NoError(t, err)
	at, err := overlay.Write(root, t.TempDir(), pointed, bugs)
	require.NoError(t, err)
	noticed := map[string]string{}
	for _, p := range scenarios {
		binary := filepath.Join(t.TempDir(), "scenarios.test")
		out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", at, "-o", binary, filepath.Join(root, p)).CombinedOutput()
		require.NoError(t, err, string(out))
		run := func(bug, tests string, most int) (string, error) {
			cmd := exec.Command(binary, "-test.v", "-test.timeout=0", "-test.run="+tests, "-preemptions="+strconv.Itoa(*preemptions), "-schedules="+strconv.Itoa(most))
			cmd.Dir = filepath.Join(root, p)
			cmd.Env = append(os.Environ(), mutate.Env+"="+bug)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		text, err := run("", *only, *schedules)
		require.NoError(t, err, text)
		require.NotContains(t, text, "SKIP")
		for _, line := range regexp.MustCompile(`(?m)^=== RUN.*|.*schedules.*$`).FindAllString(text, -1) {
			t.Log(line)
		}
		for _, m := range bugs {
			if !regexp.MustCompile(`(?m)^--- PASS: ` + m.Test + `\b`).MatchString(text) {
				continue // of another package
			}
			out, err := run(m.Name, "^"+m.Test+"$", 0)
			require.Error(t, err, "%s doesn't notice %s", m.Test, m.Name)
			require.Contains(t, out, "the schedule:")
			noticed[m.Name] = m.Test
			t.Logf("%s is noticed by %s", m.Name, m.Test)
		}
	}
	for _, m := range bugs {
		if regexp.MustCompile(*only).MatchString(m.Test) {
			require.Contains(t, noticed, m.Name, "no scenario %s", m.Test)
		}
	}
}
