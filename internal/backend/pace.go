package backend

import "time"

// longestRest bounds a rest: a disk that hangs makes what works on it slow enough.
const longestRest = 100 * time.Millisecond

// pace is for work that goes on beside puts, which need the same processors and the
// same disk: it rests so many times as long as it works.
type pace struct {
	times   int
	longest time.Duration
	since   time.Time
}

func begin(times int, longest time.Duration) *pace {
	return &pace{times: times, longest: longest, since: time.Now()}
}

func (p *pace) rest() {
	time.Sleep(min(time.Duration(p.times)*time.Since(p.since), p.longest))
	p.goOn()
}

// goOn is instead of a rest, where nobody else is at work.
func (p *pace) goOn() { p.since = time.Now() }
