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
	begun, all, longest := time.Now(), 0, 0
	for bound := range most + 1 {
		e := &explorer{bound: bound}
		for {
			steps := e.execute(t, scenario)
			longest = max(longest, steps)
			if all++; *schedules > 0 && all >= *schedules {
				t.Logf("%d schedules of up to %d steps in %v, and not all with %d preemptions", all, longest, time.Since(begun).Round(time.Millisecond), bound)
				return
			}
			if !e.next() {
				break
			}
		}
	}
	t.Logf("all schedules with up to %d preemptions: %d of up to %d steps in %v", most, all, longest, time.Since(begun).Round(time.Millisecond))
}

// Each executes a scenario with all schedules that have up to so many preemptions; what it returns gets
// the reason for which an execution couldn't go on, if there is one.
func Each(most int, scenario func(w *World) (end func(stuck string))) {
	e := &explorer{bound: most}
	for more := true; more; more = e.next() {
		w := e.world()
		end := scenario(w)
		w.run()
		end(w.stuck)
	}
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

// execute makes one execution, and returns its steps.
func (e *explorer) execute(t *testing.T, scenario func(w *World) func()) int {
	w := e.world()
	told := false
	tell := func() {
		if t.Failed() && !told {
			told = true
			t.Logf("%d preemptions; %s", e.spent, w.schedule())
		}
	}
	defer tell() // also if the check ends this goroutine
	check := scenario(w)
	w.run()
	if w.stuck != "" {
		t.Fatal(w.stuck)
	}
	check()
	if t.Failed() {
		t.FailNow()
	}
	if e.at != len(e.path) {
		t.Fatalf("the scenario isn't repeatable: %d decisions, and %d before", e.at, len(e.path))
	}
	return w.steps
}

// world is one for the next execution.
func (e *explorer) world() *World {
	e.at, e.spent = 0, 0
	return &World{choose: e.choose}
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
