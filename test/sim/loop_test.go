package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Events come in the order of their times, of their ties, and in which they were planned.
func TestEventsComeInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		var q events
		var planned []event
		for seq := range uint64(n) {
			e := event{at: time.Duration(rng.IntN(8)), tie: rng.Uint64N(3), seq: seq}
			planned = append(planned, e)
			q.push(e)
			if rng.IntN(4) > 0 {
				continue
			}
			first := q.pop()
			i := slices.IndexFunc(planned, func(e event) bool { return e.seq == first.seq })
			for _, other := range planned {
				require.False(t, other.before(&first))
			}
			planned = slices.Delete(planned, i, i+1)
		}
		slices.SortFunc(planned, func(a, b event) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		for _, e := range planned {
			require.Equal(t, e.seq, q.pop().seq)
		}
		require.Empty(t, q)
	}
}
