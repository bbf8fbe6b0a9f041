package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// program is a file in a text in Markdown: its first line names it.
var program = regexp.MustCompile("(?ms)^```lua\n(-- ([a-z0-9]+\\.lua):.*?)^```$")

// TestTheTutorialOfExtensionsIsCorrect runs the console blocks of docs/extensions.md,
// against an empty cluster, with its programs as files.
func TestTheTutorialOfExtensionsIsCorrect(t *testing.T) {
	needExtensions(t)
	text, err := os.ReadFile("../../docs/extensions.md")
	require.NoError(t, err)
	steps, programs := consoleSteps(string(text)), program.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(steps), 20)
	require.Len(t, programs, 2)
	tools := t.TempDir()
	require.NoError(t, process.LinkStoactl(tools))
	for _, s := range []shape{{1, 2}, {3, 2}} {
		t.Run(s.String(), func(t *testing.T) {
			dir := t.TempDir()
			for _, p := range programs {
				require.NoError(t, os.WriteFile(filepath.Join(dir, p[2]), []byte(p[1]), 0o600))
			}
			e := newEnv(t, s, process.StartT(t, process.Spec{Nodes: s.nodes, Partitions: s.parts}))
			sh := e.shell(dir)
			sh.run(fmt.Sprintf("PATH=%s:$PATH", tools))
			e.follow(steps, sh)
		})
	}
}
