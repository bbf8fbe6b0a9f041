package compose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The estimate of a silence is never too short, and at most two intervals
// between looks too long.
func TestSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pause = 10 * time.Millisecond
		now := time.Unix(1000, 0)
		looked, silent := now, silence{since: now}
		var sent, got int64
		began := now // the silence, if a request is outstanding
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			next := looked.Add(pause)
			at := now.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(now))).Draw(t, "later")))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				now = at
				if sent == got {
					began = now
				}
				sent++
			case 1:
				if got < sent {
					now = at
					got++
					began = now
				}
			default:
				now = next
				told := silent.look(looked, now, sent, got)
				looked = now
				if sent == got {
					require.Zero(t, told)
				} else {
					require.GreaterOrEqual(t, told, now.Sub(began))
					require.LessOrEqual(t, told, now.Sub(began)+2*pause)
				}
			}
		}
	})
}
