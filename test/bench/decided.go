package main

import (
	"fmt"
	"os"
	"time"
)

// decided is what was seen of the balancer for a time.
type decided struct {
	at      []time.Duration // of its decisions
	busiest float64         // the load of the loop that was the busiest
	looks   int
	failed  int // of the looks
	last    error
}

// mostFailed is the part of the looks that may fail: with more of them decisions could be missed, or
// told much too late.
const mostFailed = 0.01

func (d *decided) String() string {
	s := fmt.Sprintf("the busiest loop works %.0f %% of the time", 100*d.busiest)
	if d.failed > 0 {
		s += fmt.Sprintf("; %d of %d looks at the metrics failed, the last one: %v", d.failed, d.looks, d.last)
	}
	return s
}

// silence is how long no put may be executed: a load that has ended, because the server refuses it, would be
// a uniform one for the rest of the time.
const silence = 10 * time.Second

// watch looks at a server under load until a time is over. A look that fails is one fewer: a run of an hour
// doesn't end with it.
func (d *decided) watch(look func() (moment, error), since func() time.Duration, until, each time.Duration) error {
	first, err := look()
	if err != nil {
		return err
	}
	last, put := first, since() // when a look has shown puts
	for ; since() < until; time.Sleep(each) {
		m, err := look()
		if d.looks++; err != nil {
			d.failed, d.last = d.failed+1, err
			continue
		}
		if m.decisions > last.decisions {
			d.at = append(d.at, since())
			fmt.Fprintf(os.Stderr, "decision %.0f after %v\n", m.decisions, since().Round(time.Second))
		}
		if m.puts > last.puts {
			put = since()
		} else if since()-put > silence {
			return fmt.Errorf("the server hasn't executed a put since %v after the start", put.Round(time.Second))
		}
		last = m
		for q := range m.worked {
			d.busiest = max(d.busiest, (m.worked[q]-first.worked[q])/since().Seconds())
		}
	}
	if float64(d.failed) > max(1, mostFailed*float64(d.looks)) {
		return fmt.Errorf("%d of %d looks at the server's metrics failed: %w", d.failed, d.looks, d.last)
	}
	return nil
}
