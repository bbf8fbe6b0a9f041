package allocs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	// What is measured is built apart; go test must know that it has changed.
	_ "github.com/stoa-kv/stoa/internal/node"
	_ "github.com/stoa-kv/stoa/internal/rpc"
)

// TestAllocations fails if an operation allocates more often than the table says, and
// if it does so a lot less often: then the table should say so.
func TestAllocations(t *testing.T) {
	table, err := os.ReadFile("testdata/allocs.txt")
	require.NoError(t, err)
	built := map[string]string{}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		require.Len(t, f, 4, line)
		dir, benchmark, times := filepath.Join("..", "..", f[0]), f[1], f[2]
		most, err := strconv.Atoi(f[3])
		require.NoError(t, err, line)
		if built[dir] == "" {
			built[dir] = build(t, dir)
		}
		t.Run(benchmark, func(t *testing.T) {
			got := measure(t, built[dir], dir, benchmark, times)
			t.Logf("%d allocations to an operation", got)
			require.LessOrEqual(t, got, most, "allocations to an operation")
			require.GreaterOrEqual(t, got, most/2, "it allocates less: say so in testdata/allocs.txt")
		})
	}
}

// build makes the test binary of a package.
func build(t *testing.T, dir string) string {
	binary := filepath.Join(t.TempDir(), "bench.test")
	cmd := exec.Command("go", "test", "-vet=off", "-c", "-o", binary, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build: most of it is compiled
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return binary
}

var result = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s.*\s(\d+) allocs/op`)

// measure runs one benchmark so many times.
func measure(t *testing.T, binary, dir, benchmark, times string) int {
	pattern := "^Benchmark" + strings.ReplaceAll(benchmark, "/", "$/^") + "$"
	cmd := exec.Command(binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchmem", "-test.benchtime", times+"x")
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, said)
	found := result.FindAllStringSubmatch(string(said), -1)
	require.NotEmpty(t, found, "%s: %s", cmd, said) // of two transports, the first is the default one
	require.Equal(t, "Benchmark"+benchmark, found[0][1])
	n, err := strconv.Atoi(found[0][2])
	require.NoError(t, err)
	return n
}
