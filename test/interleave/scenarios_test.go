package interleave

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
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
	var noticed sync.Map // which scenario notices a mutation, by its name
	t.Run("of", func(t *testing.T) {
		for _, path := range scenarios {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				p := build(t, filepath.Join(root, path), at)
				text := p.explore(t)
				for _, m := range bugs {
					if !regexp.MustCompile(`(?m)^--- PASS: ` + m.Test + `\b`).MatchString(text) {
						continue // of another package
					}
					noticed.Store(m.Name, m.Test)
					t.Run(m.Name, func(t *testing.T) {
						t.Parallel()
						p.notices(t, m)
					})
				}
			})
		}
	})
	for _, m := range bugs {
		if regexp.MustCompile(*only).MatchString(m.Test) {
			_, ok := noticed.Load(m.Name)
			require.True(t, ok, "no scenario %s of %s", m.Test, m.Name)
		}
	}
}

// pkg is a package with scenarios, and its tests with points.
type pkg struct{ dir, binary string }

func build(t *testing.T, dir, overlay string) pkg {
	p := pkg{dir, filepath.Join(t.TempDir(), "scenarios.test")}
	out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", p.binary, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return p
}

// run explores the scenarios with a mutation in the code; "" is none.
func (p pkg) run(mutation, tests string, most int) (string, error) {
	cmd := exec.Command(p.binary, "-test.v", "-test.timeout=0", "-test.failfast", "-test.run="+tests, "-preemptions="+strconv.Itoa(*preemptions), "-schedules="+strconv.Itoa(most))
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), mutate.Env+"="+mutation)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p pkg) explore(t *testing.T) string {
	text, err := p.run("", *only, *schedules)
	require.NoError(t, err, text)
	require.NotContains(t, text, "SKIP")
	for _, line := range regexp.MustCompile(`(?m)^=== RUN.*|.*schedules.*$`).FindAllString(text, -1) {
		t.Log(line)
	}
	return text
}

func (p pkg) notices(t *testing.T, m mutate.Mutation) {
	out, err := p.run(m.Name, "^"+m.Test+"$", 0)
	require.Error(t, err, "%s doesn't notice %s", m.Test, m.Name)
	require.Contains(t, out, "the schedule:")
	t.Logf("noticed by %s", m.Test)
}
