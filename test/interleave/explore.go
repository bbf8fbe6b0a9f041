package interleave

import (
	"flag"
	"testing"
	"time"
)

var (
	preemptions = flag.Int("preemptions", 0, "explore schedules with up to so many preemptions; 0: as many as the test says")
	schedules   = flag.Int("schedules", 0, "execute at most so many of each scenario; 0: all")
)

// Explore executes a scenario with all schedules that have up to so many preemptions. The scenario adds
// tasks to an empty world, and returns what is to be checked when they have run. It has to do the
// same each time.
//
// It ends with the first schedule for which t has failed, and tells it.
func Explore(t *testing.T, most int, scenario func(w *World) (check func())) {
	if !instrumented {
		t.Skip("needs points in the code: run by go test ./test/interleave")
	}
	if *preemptions > 0 {
		most = *preemptions
	}
	var now *World
	defer func() { // also if a check ends this goroutine
		if t.Failed() && now != nil {
			t.Log(now.schedule())
		}
	}()
	begun, all, longest := time.Now(), 0, 0
	again := func(w *World) func(stuck string) bool {
		now = w
		check := scenario(w)
		return func(stuck string) bool {
			if stuck != "" {
				t.Fatal(stuck)
			}
			if check(); t.Failed() {
				t.FailNow()
			}
			all, longest = all+1, max(longest, w.steps)
			return *schedules == 0 || all < *schedules
		}
	}
	for bound := range most + 1 {
		if !Each(bound, again) {
			t.Logf("%d schedules of up to %d steps in %v, and not all with %d preemptions", all, longest, time.Since(begun).Round(time.Millisecond), bound)
			return
		}
	}
	t.Logf("all schedules with up to %d preemptions: %d of up to %d steps in %v", most, all, longest, time.Since(begun).Round(time.Millisecond))
}

// Each executes a scenario with all schedules that have up to so many preemptions. What the scenario returns gets
// the reason for which an execution couldn't go on, if there is one, and says whether there is to be another; Each reports
// whether it always did.
func Each(most int, scenario func(w *World) (end func(stuck string) bool)) bool {
	e := &explorer{bound: most}
	for more := true; more; more = e.next() {
		w := &World{choose: e.choose}
		e.at, e.spent = 0, 0
		end := scenario(w)
		w.run()
		if !end(w.stuck) {
			return false
		}
		if e.at != len(e.path) {
			panic("interleave: the scenario isn't repeatable")
		}
	}
	return true
}

// explorer goes through the tree of decisions, depth first.
type explorer struct {
	bound int // of preemptions
	path  []decision
	at    int // the next decision of this execution
	spent int // preemptions of it so far
}

// decision is a choice among tasks that could go on.
type decision struct {
	options, chosen int
	preempts        bool // all but the first option are preemptions
	before          int  // preemptions in front of it
}

// choose follows the path, and the first options behind it.
func (e *explorer) choose(options int, preempts bool) int {
	if e.at == len(e.path) {
		e.path = append(e.path, decision{options: options, preempts: preempts, before: e.spent})
	}
	d := &e.path[e.at]
	if d.options != options || d.preempts != preempts {
		panic("interleave: the scenario isn't repeatable")
	}
	e.at++
	if d.preempts && d.chosen > 0 {
		e.spent++
	}
	return d.chosen
}

// next makes the path that of the next execution; false: there is none.
func (e *explorer) next() bool {
	for len(e.path) > 0 {
		d := &e.path[len(e.path)-1]
		if d.chosen+1 < d.options && (!d.preempts || d.before < e.bound) {
			d.chosen++
			return true
		}
		e.path = e.path[:len(e.path)-1]
	}
	return false
}
