package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simulation is a runner of a script in the place of the simulation.
func simulation(t *testing.T, script string) *runner {
	dir := t.TempDir()
	binary := filepath.Join(dir, "sim.test")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+script), 0o755))
	return &runner{dir: dir, binary: binary, commit: "abc", began: time.Now(), done: map[string]*tally{}}
}

// A seed that fails is counted, kept with its events, and run again the next time.
func TestAFailingSeedIsKept(t *testing.T) {
	r := simulation(t, `echo "$@"; echo "    sim_test.go:39: seed 17 (3 servers, 2 partitions): I4 at 1s: two events"; exit 1`)
	k := kinds[1]
	failed, out := r.block(context.Background(), k, 5, "")
	require.Equal(t, []failure{{start{seed: 17}, "I4 at 1s: two events"}}, failed)
	require.Contains(t, out, "-test.run=^TestSim$ -test.timeout=60m -members -seed=5 -runs=100")

	require.NoError(t, r.note(context.Background(), k, false, failed, out))
	require.Equal(t, 1, r.failures())
	require.Contains(t, r.table(), "| members | 100 | 1 |")
	kept, err := os.ReadFile(filepath.Join(r.dir, "17.log"))
	require.NoError(t, err)
	require.Contains(t, string(kept), "-members -seed=17 -runs=1 -events")

	corpus, err := os.ReadFile(r.corpus())
	require.NoError(t, err)
	require.Equal(t, "members\t17\tabc\tI4 at 1s: two events\n", string(corpus))
	again, f, err := parse(string(corpus[:len(corpus)-1]))
	require.NoError(t, err)
	require.Equal(t, k.name, again.name)
	require.Equal(t, failed[0], f)
	require.NoError(t, r.again(context.Background()))
}

// A process that crashes isn't taken for one that passed.
func TestACrashIsAFailure(t *testing.T) {
	r := simulation(t, "exit 2")
	failed, _ := r.block(context.Background(), kinds[0], 5, "")
	require.Equal(t, []failure{{start{seed: 5}, "the runs from here: exit status 2"}}, failed)
}

func TestADamagedCorpusIsRefused(t *testing.T) {
	r := simulation(t, "exit 0")
	for _, line := range []string{"", "members\t17", "members\tx\tabc\twhat", "nothing\t17\tabc\twhat"} {
		require.NoError(t, os.WriteFile(r.corpus(), []byte(line+"\n"), 0o644))
		require.ErrorContains(t, r.again(context.Background()), r.corpus())
	}
}

// A run with turns is repeated with them.
func TestAGuidedRunIsKept(t *testing.T) {
	r := simulation(t, `echo "$@"; echo "    sim_test.go:39: seed 17 with -turns=1.5s:8,2s:9 (3 servers, 2 partitions): I4 at 1s: two events"; exit 1`)
	require.NoError(t, os.Rename(r.binary, r.noted()))
	failed, out := r.block(context.Background(), kinds[0], 5, "a-guide")
	require.Equal(t, []failure{{start{17, "1.5s:8,2s:9"}, "I4 at 1s: two events"}}, failed)
	require.Contains(t, out, "-seed=5 -runs=100 -guide=a-guide")

	require.NoError(t, os.WriteFile(r.binary, []byte("#!/bin/sh\necho $@\nexit 1"), 0o755))
	require.NoError(t, r.note(context.Background(), kinds[0], true, failed, out))
	require.Contains(t, r.table(), "| as the seed says, guided | 100 | 1 |")
	kept, err := os.ReadFile(filepath.Join(r.dir, "17-1.5s-8-2s-9.log"))
	require.NoError(t, err)
	require.Contains(t, string(kept), "-seed=17 -runs=1 -turns=1.5s:8,2s:9 -events")
	corpus, err := os.ReadFile(r.corpus())
	require.NoError(t, err)
	_, f, err := parse(string(corpus[:len(corpus)-1]))
	require.NoError(t, err)
	require.Equal(t, failed[0], f)
}
