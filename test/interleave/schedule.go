package interleave

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// turn is a part of a task that was executed without an interruption.
type turn struct {
	task *task
	how  end
	at   []uintptr // where it stopped
}

// end is how a turn ends.
type end int

const (
	preempted end = iota
	waiting       // for a lock
	finished
)

// note records that a task's turn ends here.
func (w *World) note(t *task, how end) {
	u := turn{task: t, how: how}
	if how != finished {
		u.at = make([]uintptr, 12)
		u.at = u.at[:runtime.Callers(3, u.at)]
	}
	w.turns = append(w.turns, u)
}

// schedule tells who ran when, and up to where.
func (w *World) schedule() string {
	var s strings.Builder
	spent := 0
	for _, u := range w.turns {
		if u.how == preempted {
			spent++
		}
	}
	fmt.Fprintf(&s, "%d preemptions; the schedule:\n", spent)
	for _, u := range w.turns {
		fmt.Fprintf(&s, "  %s ", u.task.name)
		switch u.how {
		case finished:
			s.WriteString("runs to its end\n")
		case waiting:
			fmt.Fprintf(&s, "waits at %s\n", place(u.at))
		default:
			fmt.Fprintf(&s, "stops in front of %s\n", place(u.at))
		}
	}
	return s.String()
}

// place names the operation and its callers, up to three of them.
func place(at []uintptr) string {
	var lines []string
	frames := runtime.CallersFrames(at)
	for len(lines) < 4 {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/test/interleave") {
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			lines = append(lines, fmt.Sprintf("%s (%s:%d)", name, filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return strings.Join(lines, " < ")
}
