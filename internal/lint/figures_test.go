package lint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is a goal's figure: "2.83x (2.79–3.51)".
var measured = regexp.MustCompile(`^(\d+\.\d+)x\b`)

// TestReadmesFigures: what README.md says of the speed is what docs/benchmarks.md has measured.
func TestReadmesFigures(t *testing.T) {
	goals := map[string]float64{}
	for line := range strings.Lines(read(t, "docs/benchmarks.md")) {
		if cells := strings.Split(line, " | "); len(cells) == 4 {
			if m := measured.FindStringSubmatch(cells[2]); m != nil {
				figure, err := strconv.ParseFloat(m[1], 64)
				require.NoError(t, err)
				goals[strings.TrimPrefix(cells[0], "| ")] = figure
			}
		}
	}
	of := func(goal string) float64 {
		require.Contains(t, goals, goal)
		return goals[goal]
	}
	const put, get, sessions = "etcd API, 3 nodes, put, 1000 clients: ", "etcd API, 3 nodes, linearizable get, 1000 clients: ", "sessions, 3 nodes, puts of "
	readme := strings.Join(strings.Fields(read(t, "README.md")), " ")
	for _, says := range []string{
		fmt.Sprintf("puts run at %.1f times etcd's rate and linearizable reads at %.1f times, for %.2f and %.2f of the CPU per operation",
			of(put+"throughput"), of(get+"throughput"), of(put+"CPU per operation"), of(get+"CPU per operation")),
		fmt.Sprintf("Puts over sessions run at %.1f times etcd's rate if each session has a directory of its own, and at %.1f times for any keys.",
			of(sessions+"a directory for each session, each server at its best: beside etcd"), of(sessions+"any keys, each server at its best: beside etcd")),
	} {
		require.True(t, strings.Contains(readme, says), "README.md doesn't say: %s", says)
	}
}
