package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/internal/lag"
)

// A cluster that isn't reached lacks what was put into the queue since its first command, though the
// other one has had all.
func TestLags(t *testing.T) {
	begun := time.Unix(1000, 0)
	here, err := commands.NewCarrier(commands.CarrierConfig{Cluster: 0})
	require.NoError(t, err)
	x := &term{carriers: []*commands.Carrier{here, nil}}
	of := make([]lag.Lag, 2)
	look := func(second int, done int64) []time.Duration {
		return x.lags(of, begun.Add(time.Duration(second)*time.Second), done)
	}
	require.Equal(t, []time.Duration{0, 0}, look(0, 0))
	for second, entry := range []int64{10, 12, 12} {
		here.Add(commands.Entry{Revision: entry}) // nothing for this cluster
		x.newest = entry
		require.Equal(t, []time.Duration{0, time.Duration(second) * time.Second}, look(second, 0))
	}
	require.Equal(t, []time.Duration{0, 2 * time.Second}, look(3, 10), "since 12 was there")
	require.Equal(t, []time.Duration{0, 0}, look(4, 12))
}
