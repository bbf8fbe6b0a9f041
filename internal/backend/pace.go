package backend

import "time"

// longestPause bounds a pause: on a stalled disk the work is slow enough
// already.
const longestPause = 100 * time.Millisecond

// pace throttles background work, which competes with puts for CPU and disk:
// it pauses times as long as it has worked.
type pace struct {
	times   int
	longest time.Duration
	since   time.Time
}

func begin(times int, longest time.Duration) *pace {
	return &pace{times: times, longest: longest, since: time.Now()}
}

func (p *pace) pause() {
	time.Sleep(min(time.Duration(p.times)*time.Since(p.since), p.longest))
	p.restart()
}

// restart begins a new period of work without a pause, for an idle server.
func (p *pace) restart() { p.since = time.Now() }
