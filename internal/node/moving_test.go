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
	p := &pace{keys: stepKeys}
	now := time.Unix(0, 0)
	step := func(meet, move time.Duration) time.Duration {
		p.first, p.all = now.Add(-meet-move), now.Add(-move)
		return p.stepped(now.Add(-time.Second), now)
	}
	require.Equal(t, 2*time.Millisecond, step(time.Millisecond, time.Millisecond))
	require.Equal(t, stepKeys, p.keys)
	for _, want := range []int{500, 1000, 1000} {
		require.Equal(t, 20*time.Millisecond, step(19*time.Millisecond, time.Millisecond))
		require.Equal(t, want, p.keys)
	}
	step(6*time.Millisecond, 4*time.Millisecond)
	require.Equal(t, 1000, p.keys)
	for _, want := range []int{500, 250, 250} {
		step(time.Millisecond, 4*time.Millisecond)
		require.Equal(t, want, p.keys)
	}
	require.Equal(t, time.Second, p.stepped(now.Add(-time.Second), now), "another server led, and nothing is known of this one")
	require.Equal(t, stepKeys, p.keys)
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
