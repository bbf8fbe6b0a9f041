package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wallClock are the calls that reduce a time to the machine's clock, which may be set by
// hours at any moment. Go's other times have a reading of a clock that isn't.
var wallClock = regexp.MustCompile(`\.Unix(Nano|Micro|Milli)?\(\)|time\.Unix(Micro|Milli)?\(|\.Round\(0\)`)

// showsTime are the files that may use them, with the reason.
var showsTime = map[string]string{
	"internal/rpc/extensions.go": "the time of a log line is shown",
	"internal/token/jwt.go":      "the time is in the token, for others to compare",
}

// No server measures an interval with the machine's clock: leases, elections, timeouts and
// silent peers don't notice when it is set. Whether what they import measures with it isn't seen here:
// TestLinksOfASetClock of test/faults, and TestClocks of test/compat, set the clocks of servers.
func TestIntervalsDontFollowTheMachinesClock(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	for _, dir := range []string{"internal", "cmd/stoa"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
			if found := wallClock.FindString(string(text)); found != "" {
				seen[name] = true
				require.Contains(t, showsTime, name, "%s uses %s", name, found)
			}
			return err
		})
		require.NoError(t, err)
	}
	for name := range showsTime {
		require.True(t, seen[name], "%s needs no exception any more", name)
	}
}
