package interleave

import (
	"fmt"
	"os"
	"sync/atomic"
)

// World is what one execution of a scenario consists of: tasks, one of which runs.
type World struct {
	tasks   []*task
	current *task
	// choose picks one of several tasks that could go on; the first is the one that runs, if that
	// would be preempted by any other.
	choose func(options int, preempts bool) int
	steps  int
	turns  []turn
	done   chan struct{}
	stuck  string // why nothing goes on though tasks have not ended
}

// task is a goroutine of a world.
type task struct {
	name  string
	do    func()
	ready func() bool // nil: it runs once

	state  state
	waits  any // for what it is blocked
	whole  int // calls of Whole that it is in
	resume chan struct{}
}

type state int

const (
	idle    state = iota // not running; it has no goroutine
	parked               // it could go on
	blocked              // at a lock
	ended
)

// mostSteps bounds an execution: one that is longer is taken for an endless one.
const mostSteps = 100_000

// active is the world that is being executed. There is one at a time.
var active atomic.Pointer[World]

// Go adds a task, before the execution or during it.
func (w *World) Go(name string, do func()) { w.add(name, nil, do) }

// When adds a task that runs each time the condition holds, from its beginning to its end: the loop of
// a goroutine that waits for a channel or a flag. The condition must have no points.
func (w *World) When(name string, ready func() bool, do func()) { w.add(name, ready, do) }

func (w *World) add(name string, ready func() bool, do func()) {
	w.tasks = append(w.tasks, &task{name: name, do: do, ready: ready, resume: make(chan struct{}, 1)})
}

// Whole has a task execute something without being preempted: what is not of interest, and has too many
// points. It may still wait for a lock.
func Whole(do func()) {
	if w := active.Load(); w != nil {
		me := w.current
		me.whole++
		defer func() { me.whole-- }()
	}
	do()
}

// run executes the tasks until none can go on.
func (w *World) run() {
	w.done = make(chan struct{})
	if !active.CompareAndSwap(nil, w) {
		panic("interleave: another world is being executed")
	}
	defer active.Store(nil)
	if first := w.pick(nil); first != nil {
		w.handOver(first)
		<-w.done
	}
}

// Point is in front of each operation on what tasks share. Outside of an execution it does nothing.
func Point() {
	w := active.Load()
	if w == nil {
		return
	}
	if w.steps++; w.steps > mostSteps {
		w.end(fmt.Sprintf("%d steps, and no end: %q runs", w.steps, w.current.name))
		select {} // for ever: the test fails
	}
	me := w.current
	if me.whole > 0 {
		return
	}
	if next := w.pick(me); next != me {
		w.note(me, preempted)
		w.handOver(next)
		<-me.resume
	}
}

// Wait returns once Wake was called for an object, and is called when it can't be had. It reports
// whether there is an execution; else the caller has to wait by itself.
func Wait(object any) bool {
	w := active.Load()
	if w == nil {
		return false
	}
	me := w.current
	me.state, me.waits = blocked, object
	w.note(me, waiting)
	w.goOn()
	<-me.resume
	return true
}

// Wake lets all go on that wait for an object.
func Wake(object any) {
	w := active.Load()
	if w == nil {
		return
	}
	for _, t := range w.tasks {
		if t.state == blocked && t.waits == object {
			t.state, t.waits = parked, nil
		}
	}
}

// pick chooses the task that goes on; nil if none can. me is the one that runs, nil if it can't.
func (w *World) pick(me *task) *task {
	var options []*task
	if me != nil {
		options = append(options, me)
	}
	for _, t := range w.tasks {
		if t != me && t.couldRun() {
			options = append(options, t)
		}
	}
	switch len(options) {
	case 0:
		return nil
	case 1:
		return options[0]
	}
	return options[w.choose(len(options), me != nil)]
}

func (t *task) couldRun() bool {
	return t.state == parked || t.state == idle && (t.ready == nil || t.ready())
}

// handOver lets another task run.
func (w *World) handOver(next *task) {
	w.current = next
	if next.state == idle {
		next.state = parked
		go w.body(next)
		return
	}
	next.resume <- struct{}{}
}

// body is a task's goroutine.
func (w *World) body(t *task) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintln(os.Stderr, w.schedule())
			panic(p)
		}
		w.note(t, finished)
		if t.state = ended; t.ready != nil {
			t.state = idle
		}
		w.goOn()
	}()
	t.do()
}

// goOn hands over to any task, because the one that runs can't go on.
func (w *World) goOn() {
	if next := w.pick(nil); next != nil {
		w.handOver(next)
		return
	}
	why := ""
	for _, t := range w.tasks {
		if t.state == blocked {
			why += fmt.Sprintf("%q waits for a lock that nobody gives up\n", t.name)
		}
	}
	w.end(why)
}

// end ends the execution.
func (w *World) end(why string) {
	w.stuck = why
	close(w.done)
}
