//go:build faults

package faults

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

var mutants = flag.Bool("mutants", false, "show that broken servers are found out (some minutes)")

// mutant is a seeded bug in the server's source that breaks a guarantee of
// sessions.
type mutant struct {
	name    string
	file    string
	replace [][2]string // each stands in the file once
	faults  []string
	ready   bool // found by the example of /ready
	says    []string
}

var hurt = []string{"kill the leader", "kill one", "pause the leader for long", "move the leader"}

var sessionMutants = []mutant{
	{name: "a write that is sent again is done again", file: "internal/apply/session.go", replace: [][2]string{
		{"case before.result != nil:", "case false:"},
		{"case q.Seq <= before.last:", "case false:"},
		{"x.remember(&q, newOutcome(&q, r), before.local)", "if before.last < q.Seq { x.remember(&q, newOutcome(&q, r), before.local) }"},
	}, faults: []string{"kill the leader", "pause the leader for long"}, says: []string{"TWICE"}},
	{name: "writes to several partitions are under way together", file: "internal/session/write.go", replace: [][2]string{
		{"|| plan.Parts != w.parts {", "{"},
		{"pred = w.last", "pred = 0"},
	}, faults: hurt, says: []string{"ORDER", "GAP"}},
	{name: "a causal read doesn't wait for what the session has seen", file: "internal/session/read.go", replace: [][2]string{
		{"max(s.seen, r.token))", "0)"},
	}, faults: hurt, says: []string{"STALE: causal"}},
	{name: "a causal read doesn't wait, seen by the example", file: "internal/session/read.go", replace: [][2]string{
		{"max(s.seen, r.token))", "0)"},
	}, faults: hurt, ready: true, says: []string{"UNREADY", "BACK"}},
	{name: "a read doesn't wait for the writes before it", file: "internal/session/read.go", replace: [][2]string{
		{"if s.writes.count > 0 || r.waiting || r.ready {", "if r.waiting || r.ready {"},
	}, faults: hurt, says: []string{"STALE"}},
	{name: "a strict read without a confirmation", file: "internal/session/read.go", replace: [][2]string{
		{"Await(r.strict,", "Await(false,"},
	}, faults: hurt, says: []string{"STALE: strict"}},
	{name: "a reply doesn't wait for events", file: "internal/session/session.go", replace: [][2]string{
		{"op.Reflects && !s.host.Delivered(op)", "op.Reflects && false"},
	}, faults: hurt, says: []string{"LATE"}},
	{name: "watches are not brought into one order", file: "internal/session/merge.go", replace: [][2]string{
		{"if !m.sorted {", "if false {"},
	}, faults: hurt, says: []string{"ORDER: the watcher"}},
}

// TestMutants runs broken servers, which the checkers must detect.
func TestMutants(t *testing.T) {
	if !*mutants {
		t.Skip("asked for by -mutants")
	}
	for _, m := range sessionMutants {
		t.Run(m.name, func(t *testing.T) {
			bin := m.build(t)
			for attempt := range 3 {
				err := m.run(t, bin)
				for _, says := range m.says {
					if err != nil && strings.Contains(err.Error(), says) {
						t.Logf("found at attempt %d: %.400s", attempt+1, err)
						return
					}
				}
				t.Logf("attempt %d: %.400v", attempt+1, err)
			}
			t.Error("not found")
		})
	}
}

func (m mutant) run(t *testing.T, bin process.Binary) error {
	r := newRig(t, 4, bin)
	defer r.cluster.Close()
	if m.ready {
		_, err := r.ready(min(*loadTime, 15*time.Second))
		return err
	}
	return r.sessions(min(*loadTime, 15*time.Second), m.faults)
}

// build builds the server with the file changed; the checkout stays as it is.
func (m mutant) build(t *testing.T) process.Binary {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	file, dir := filepath.Join(root, m.file), t.TempDir()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	text := string(source)
	for _, r := range m.replace {
		require.Equal(t, 1, strings.Count(text, r[0]), "%s: %s", m.file, r[0])
		text = strings.Replace(text, r[0], r[1], 1)
	}
	changed := filepath.Join(dir, "changed.go")
	require.NoError(t, os.WriteFile(changed, []byte(text), 0o644))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o644))
	bin := filepath.Join(dir, "stoa")
	cmd := exec.Command("go", "build", "-overlay", list, "-o", bin, "./cmd/stoa")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return process.Binary{Path: bin, Stoa: true}
}
