package script_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

// row is one of the table of differences: an expression, what it is in Lua 5.1, and what
// it is here.
var row = regexp.MustCompile("(?m)^\\| `(.+?)` \\| [^|]+ \\| (error: )?`(.+?)` \\|$")

// Every row of the documentation's table of differences from Lua 5.1 is run.
func TestDifferencesFromLua(t *testing.T) {
	text, err := os.ReadFile("../../docs/extensions.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "### What differs from Lua 5.1")
	section, _, _ = strings.Cut(section, "\n#")
	rows := row.FindAllStringSubmatch(section, -1)
	require.Greater(t, len(rows), 30)
	for _, r := range rows {
		o := compileAndRun("return { run = function() return "+r[1]+" end }", script.Bounds{}, roomy)
		if r[2] != "" {
			require.Contains(t, o.err.Reason, strings.TrimSuffix(r[3], "…"), r[1])
			continue
		}
		require.Empty(t, o.err.Reason, r[1])
		require.Equal(t, r[3], o.value, r[1])
	}
}
