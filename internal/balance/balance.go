package balance

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/internal/load"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The policy's figures. Loads are parts of a loop's time, 1 being all of it.
const (
	Busy   = 0.25 // of the busiest loop: below, little waits for it
	Uneven = 0.3  // the difference at which a decision is made, of the mean
	Even   = 0.05 // and at which it is complete
	Gain   = 0.1  // by how much the busiest loop must become less busy, of its load
	// Heavier is by how much more work the busiest loop must have than the idlest, of the mean: one
	// that only takes longer for it is held up by something else.
	Heavier = 0.1

	// Settled is by how much of all load a loop's part of it may change from one call to the next.
	Settled = 0.07

	// Interval is how often [Controller.Decide] should be called.
	Interval = 500 * time.Millisecond
	// Patience is how many times in a row the load must be uneven.
	Patience = 4
	Pause    = 15 * time.Second
	Hold     = time.Minute
	MaxHold  = 16 * time.Minute

	// MaxSlots bounds a decision.
	MaxSlots = 512
	// alike are slots whose loads differ by no more than this factor.
	alike = 4
	// negligible slots, by their part of the mean, aren't moved.
	negligible = 1e-4

	// Partitions wait while a key moves, or is passed over by a transit: all of them below level 7, or
	// where there are quotas.
	costOfKey  = 2 * time.Microsecond
	costOfPass = 5 * time.Nanosecond
	// worth is the part of the time that is gained in horizon which moves may cost.
	worth   = 0.1
	horizon = 30 * time.Second
)

// Situation is what a decision depends on.
type Situation struct {
	Now   time.Duration // of any clock that never goes back
	Load  *load.Snapshot
	Where *placement.Map // not in transit
	// Keys returns how many keys each slot of a partition has. It is called only for a decision.
	Keys func(partition int) *[placement.Slots]int
	// Total is the number of all keys.
	Total int
}

// Move brings a slot with its load from one partition to another.
type Move struct {
	Slot, From, To int
	Load           float64
	Keys           int
	Prefix         string // the hottest of the slot, if it is among the hottest
}

// Decision is a result: moves, or none. Why says in either case why.
type Decision struct {
	Moves []Move
	Why   string
	// Before and After are the loads of the partitions' loops.
	Before, After []float64
}

// Assignments are where the moves bring their slots.
func (d *Decision) Assignments() []placement.Assignment {
	list := make([]placement.Assignment, 0, len(d.Moves))
	for _, m := range d.Moves {
		list = append(list, placement.Assignment{Slot: m.Slot, Partition: m.To})
	}
	return list
}

// Keys is how many keys the moves concern.
func (d *Decision) Keys() (n int) {
	for _, m := range d.Moves {
		n += m.Keys
	}
	return n
}

// Controller remembers the last decision. The zero value is ready.
type Controller struct {
	acted    bool
	last     time.Duration // when it decided last
	hold     time.Duration // from last to the next; 0, or at least Hold
	uneven   int           // how many times in a row
	relapsed bool          // the load has been uneven within Pause after the last decision
	again    time.Duration // moves that weren't worth it aren't considered before
	parts    []float64     // of all load, of each loop, at the last call
}

// Decide is called every [Interval], and returns the moves to be made now. A caller that can't make
// them puts back the controller's value of before.
func (c *Controller) Decide(s *Situation) Decision {
	d := Decision{Before: s.Load.Loops(s.Where)}
	d.After = d.Before
	settled := c.settled(d.Before)
	if why := unevenness(s.Load, d.Before); why != "" {
		c.uneven = 0
		d.Why = why
		return d
	}
	c.uneven++
	if c.uneven < Patience {
		d.Why = fmt.Sprintf("the loads are uneven, %.0f %% to %.0f %%, but not for %v yet", 100*slices.Min(d.Before), 100*slices.Max(d.Before), Patience*Interval)
		return d
	}
	if !settled {
		d.Why = fmt.Sprintf("the loads are uneven, %.0f %% to %.0f %%, and still change", 100*slices.Min(d.Before), 100*slices.Max(d.Before))
		return d
	}
	if c.acted {
		since := s.Now - c.last
		if since < Pause && !c.relapsed {
			c.relapsed = true
			c.hold = min(max(2*c.hold, Hold), MaxHold)
		}
		if wait := c.hold - since; wait > 0 { // within Pause, hold is longer than that
			d.Why = fmt.Sprintf("the last decision was %v ago, and the next comes in %v at the earliest", since.Round(time.Second), wait.Round(time.Second))
			return d
		}
	}
	if s.Now < c.again {
		d.Why = "moves wouldn't have been worth it a moment ago"
		return d
	}
	d = Plan(s)
	if len(d.Moves) == 0 {
		c.again = s.Now + Pause
		return d
	}
	if !c.relapsed {
		c.hold = 0 // the last one has lasted
	}
	c.acted, c.last, c.relapsed, c.uneven = true, s.Now, false, 0
	return d
}

// settled reports whether each loop has about the part of all load that it had at the last call: else a decision
// would be made for a load that is no more, in part.
func (c *Controller) settled(loops []float64) bool {
	var sum float64
	for _, l := range loops {
		sum += l
	}
	before := c.parts
	c.parts = make([]float64, len(loops)) // a copy of the controller may have the one before
	settled := len(before) == len(loops)
	for p, l := range loops {
		if sum > 0 {
			c.parts[p] = l / sum
		}
		settled = settled && math.Abs(c.parts[p]-before[p]) <= Settled
	}
	return settled
}

// unevenness is why no move is needed, empty if one is.
func unevenness(l *load.Snapshot, loops []float64) string {
	if len(loops) < 2 {
		return "there is one partition"
	}
	busiest, idlest, mean := extremes(loops)
	switch {
	case loops[busiest] <= Busy:
		return fmt.Sprintf("the busiest loop, of partition %d, works %.0f %% of the time; up to %.0f %% nothing is moved", busiest, 100*loops[busiest], 100*Busy)
	case loops[busiest]-loops[idlest] <= Uneven*mean:
		return fmt.Sprintf("the loads are even: %.0f %% to %.0f %%", 100*loops[idlest], 100*loops[busiest])
	}
	if _, _, mean := extremes(l.Work); l.Work[busiest]-l.Work[idlest] <= Heavier*mean {
		return fmt.Sprintf("the loop of partition %d works %.0f %% of the time, that of partition %d %.0f %%, for as much work: something else holds it up", busiest, 100*loops[busiest], idlest, 100*loops[idlest])
	}
	return ""
}

func extremes(loops []float64) (busiest, idlest int, mean float64) {
	for p, l := range loops {
		mean += l / float64(len(loops))
		if l > loops[busiest] {
			busiest = p
		}
		if l < loops[idlest] {
			idlest = p
		}
	}
	return busiest, idlest, mean
}
