// Package cover notes which parts of the code that servers run follow on each other in a run of the
// simulation, so that the next runs can be chosen by what few others have reached.
//
// Production code has no such notes. They are compiled in by an overlay (package overlay): each block of a source
// calls [At] with a number of its own. In builds without it nothing is ever noted. A step from one block to
// the next, within one event, stands for itself: how often it is taken in a run doesn't count, as in the counters of
// AFL without their buckets.
//
// It imports nothing of stoa, since the code that it is compiled into must import it. In: numbers of blocks. Out: steps.
package cover

import (
	"sync"
	"time"
)

// kinds is how many steps are told apart. Two may have the same number; so far a run has some ten thousand.
const kinds = 1 << 18

// Step is one that a run has taken, and when it did so first, in simulated time.
type Step struct {
	Number uint32
	At     time.Duration
}

var (
	last  uint32
	taken [kinds]bool
	now   time.Duration

	mu    sync.Mutex // a few things that servers do have goroutines of their own
	steps []Step
)

// At notes that a block is executed.
func At(block uint32) {
	step := (last>>1 ^ block) % kinds
	last = block
	if !taken[step] {
		note(step)
	}
}

func note(step uint32) {
	mu.Lock()
	defer mu.Unlock()
	if !taken[step] {
		taken[step] = true
		steps = append(steps, Step{step, now})
	}
}

// Event begins an event.
func Event(kind uint32, at time.Duration) { last, now = kind, at }

// Take returns the steps since the last call, in their order.
func Take() []Step {
	mu.Lock()
	defer mu.Unlock()
	all := steps
	for _, s := range all {
		taken[s.Number] = false
	}
	steps, last, now = nil, 0, 0
	return all
}
