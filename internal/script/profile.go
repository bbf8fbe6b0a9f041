package script

import "sync"

// Profile counts by source line the steps of the calls that are made with it
// ([Module.Profiled]). The zero Profile is empty. Any number of goroutines may use one
// at once.
type Profile struct {
	mu    sync.Mutex
	calls int64
	lines []LineUsage // by line
}

// LineUsage is the usage of one line of a source, in all calls of a profile.
type LineUsage struct {
	Line  int   // from 1
	Calls int64 // that were charged for something on the line
	Steps int64
}

// Usage returns the number of calls, and the lines that any of them was charged for,
// in ascending order. The steps of all lines together are those of the calls' usage.
func (p *Profile) Usage() (calls int64, lines []LineUsage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.Calls > 0 {
			lines = append(lines, l)
		}
	}
	return p.calls, lines
}

// add counts a call that has ended; steps are those of each line.
func (p *Profile) add(steps []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	for line := len(p.lines); line < len(steps); line++ {
		p.lines = append(p.lines, LineUsage{Line: line})
	}
	for line, n := range steps {
		if n > 0 {
			p.lines[line].Calls++
			p.lines[line].Steps += n
		}
	}
}

// A call that is not profiled must not pay for the possibility, and each statement charges
// steps. So a profiled call keeps its steps lower by profileBias, which makes them always
// negative: every charge then takes the branch of a charge that exceeds the limit
// (outOfSteps), which counts it, and compares the actual steps with 0.
//
// The bias is more than any limit, at least as much as any single charge, and twice the bias
// doesn't overflow.
const profileBias = 1 << 62

// profiling is the state of a call that is profiled. The zero value is that of others.
type profiling struct {
	bias  int64   // steps are lower by this; 0 once the limit is exceeded
	left  int64   // the actual steps before the charge
	lines []int64 // steps of each line
}

// beginProfile must come before the first charge.
func (c *Call) beginProfile() {
	c.profile = profiling{bias: profileBias, left: c.steps}
	c.steps -= profileBias
}

// profiled counts a charge that has been taken from the steps, and tells whether they
// sufficed for it.
func (c *Call) profiled(at position) bool {
	p := &c.profile
	if p.bias == 0 {
		return false
	}
	left := c.steps + p.bias
	for int(at.line) >= len(p.lines) {
		p.lines = append(p.lines, 0)
	}
	p.lines[at.line] += p.left - max(left, 0)
	if p.left = left; left < 0 {
		p.bias = 0
	}
	return left >= 0
}
