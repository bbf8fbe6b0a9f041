package faults

import (
	"context"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// Faults of wall clocks, of servers that are built for it (process.WithClock). Each clock is set by
// itself, and stays as it is over restarts.

// clockFaults are those of faults that need such servers.
var clockFaults = map[string]func(*nemesis, context.Context) error{
	"set a clock":            func(n *nemesis, _ context.Context) error { return n.setClocks(n.any()) },
	"set the leader's clock": func(n *nemesis, ctx context.Context) error { return n.setClocks(n.leader(ctx)) },
	"set all clocks":         func(n *nemesis, _ context.Context) error { return n.setClocks(n.cluster.Servers...) },
	// From standing still to four times as fast.
	"a clock goes wrong": func(n *nemesis, _ context.Context) error {
		return n.any().RunClock(4*n.rnd.Float64()-1, time.Duration(500+n.rnd.IntN(2500))*time.Millisecond)
	},
}

// setClocks sets each clock by up to two days from the right time, or to long ago.
func (n *nemesis) setClocks(servers ...*process.Server) error {
	for _, s := range servers {
		ahead := time.Duration((2*n.rnd.Float64() - 1) * float64(48*time.Hour))
		if n.rnd.IntN(8) == 0 {
			ahead = -50 * 365 * 24 * time.Hour
		}
		n.say("  %s: %v", s.Name, ahead.Round(time.Second))
		if err := s.SetClock(ahead); err != nil {
			return err
		}
	}
	return nil
}
