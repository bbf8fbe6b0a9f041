package lag

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLag(t *testing.T) {
	begun := time.Unix(1000, 0)
	var l Lag
	for i, c := range []struct {
		followed, follower int64
		lag                time.Duration
	}{
		{10, 10, 0},
		{12, 10, 0}, // just seen
		{12, 10, time.Second},
		{15, 10, 2 * time.Second},
		{15, 12, time.Second}, // since 15 was seen
		{20, 15, 0},
		{20, 20, 0},
		{5, 20, 0}, // it begins anew
		{21, 20, 0},
		{21, 20, time.Second},
	} {
		require.Equal(t, c.lag, l.Look(begun.Add(time.Duration(i)*time.Second), c.followed, c.follower), "%d: %+v", i, c)
	}
	for i := range 2 * most {
		l.Look(begun, int64(100+i), 20)
	}
	require.LessOrEqual(t, len(l.seen), most)
}
