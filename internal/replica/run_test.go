package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A session's writes that were routed before the number of partitions changed are refused, like a single one.
func TestARunOfWritesForAPartitionThatIsGone(t *testing.T) {
	s := leading(t, 1)
	var asked [2]answers
	run := []*Write{newPut(t, &asked[0]), newPut(t, &asked[1])}
	for _, w := range run {
		w.Parts, w.Home, w.Session = placement.Of(2), 2, true
	}
	s.replicas[0].SubmitRun(run)
	require.Equal(t, [2]answers{{1, fault.Moved}, {1, fault.Moved}}, asked)
}
