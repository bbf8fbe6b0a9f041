package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// Steps have more keys where partitions take long to meet, and fewer again where it is the keys
// that take long. The pause follows the time that partitions have waited, not the one that the step
// took to get into the log.
func TestStepsArePaced(t *testing.T) {
	p := startPace()
	now := time.Unix(0, 0)
	step := func(meet, move time.Duration) time.Duration {
		p.first, p.all = now.Add(-meet-move), now.Add(-move)
		return p.stepped(now.Add(-time.Second), now)
	}
	require.Equal(t, 2*time.Millisecond, step(time.Millisecond, time.Millisecond))
	require.Equal(t, 64, p.keys)
	for _, want := range []int{128, 256, 512, 1000, 1000} {
		require.Equal(t, 20*time.Millisecond, step(19*time.Millisecond, time.Millisecond))
		require.Equal(t, want, p.keys)
	}
	step(6*time.Millisecond, 4*time.Millisecond)
	require.Equal(t, 1000, p.keys)
	p.made = 0
	for _, want := range []int{500, 250, 125, 64, 64} {
		step(time.Millisecond, 4*time.Millisecond)
		require.Equal(t, want, p.keys)
	}
	require.Equal(t, time.Second, p.stepped(now.Add(-time.Second), now), "another server led, and nothing is known of this one")
	require.Equal(t, 64, p.keys)
}

// The steps of a transit of a thousand keys are all small. A million are moved in fewer than 5,000,
// none of which is large.
func TestStepsOfLargeTransitsGrow(t *testing.T) {
	p := startPace()
	steps := 0
	for moved := 0; moved < 1_000_000; steps++ {
		if moved < 2000 {
			require.Equal(t, 64, p.keys)
		}
		moved += p.keys
		p.first, p.all = time.Unix(0, 0), time.Unix(0, 1)
		p.stepped(time.Unix(0, 0), time.Unix(0, 1_000_000))
		require.LessOrEqual(t, p.keys, 250)
	}
	require.Less(t, steps, 5000)
}

// The server that leads is told when its loops meet at a step.
func TestStepsTellWhenTheirPartitionsMeet(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.ready()
	n := c.nodes[0].current()
	var met []bool
	done := make(chan error, 1)
	step := command.Step{From: []byte("of no transit"), Last: true}
	n.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
		Parts:   n.machine.Placement().All(), System: true,
		Met:  func(all bool) { met = append(met, all) },
		Done: func(out replica.Outcome) { done <- out.Err },
	})
	require.NoError(t, <-done)
	require.Equal(t, []bool{false, true}, met)
}
