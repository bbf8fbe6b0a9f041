package apply

import (
	"fmt"
	"slices"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// tally counts the work of an extension for one command.
type tally struct {
	e        *extension.Extension
	standing extension.Standing // as the command found it
	ran      bool
	direct   bool  // a change that the command made itself has woken it
	steps    int64 // of its event handler, with the charges for runs and writes
	failed   error // the last limit that it exceeded
}

// fewTallies is how many are searched one by one.
const fewTallies = 8

// tally finds or begins that of an extension.
func (x *execution) tally(e *extension.Extension) *tally {
	if len(x.tallies) <= fewTallies {
		for _, t := range x.tallies {
			if t.e == e {
				return t
			}
		}
	} else if t := x.tallyOf[e]; t != nil {
		return t
	}
	t := &tally{e: e, standing: standingOf(view{x}, e.StateKey())}
	x.tallies = append(x.tallies, t)
	if len(x.tallies) > fewTallies {
		x.indexTallies()
	}
	return t
}

func (x *execution) indexTallies() {
	if x.tallyOf == nil {
		x.tallyOf = map[*extension.Extension]*tally{}
		for _, t := range x.tallies {
			x.tallyOf[t.e] = t
		}
	}
	last := x.tallies[len(x.tallies)-1]
	x.tallyOf[last.e] = last
}

// note keeps the error of a run if it is that of a limit.
func (t *tally) note(err error) {
	t.ran = true
	if fault.CodeOf(err) == fault.ExtensionLimit.Code() {
		t.failed = err
	}
}

// tooManySteps is the refusal of a command whose event handlers took too many steps, and
// counts it as a failure of the extensions that caused it. A request with many changes may
// be too large by itself; its client gets the refusal, and no extension is at fault. So the
// steps are compared with the number of changes of the request itself that have triggered
// handlers, and the number of extensions that share the steps: an extension that took more
// than half of an equal share for each such change is at fault. If there is none, then one
// change by itself stays within half of the limit, and the request can be made smaller.
func (x *execution) tooManySteps(woken int64) error {
	limit := x.m.Extensions().Limits.EventSteps
	var most *tally
	n := int64(0)
	for _, t := range x.tallies {
		if t.steps > 0 {
			n++
		}
		if most == nil || t.steps > most.steps {
			most = t
		}
	}
	for _, t := range x.tallies {
		if t.steps > 0 && t.steps/woken > limit/(2*n) && t.failed == nil {
			t.failed = x.blame(t, "its event handler took %d of the %d steps that a request may lead to (event_steps)", t.steps, limit)
		}
	}
	return fault.TooMuchWork.With(fmt.Sprintf("stoa: the request would take more than %d steps of event handlers (event_steps in %s), most of them of extension %q; "+
		"nothing of it was done: change fewer keys at once", limit, extension.LimitsKey, most.e.Name))
}

// tooManyEvents is the refusal of a command whose event handlers trigger each other too
// often. If extensions trigger each other in a cycle, the one that was registered last has
// closed it, and is at fault.
func (x *execution) tooManyEvents(sub int64) error {
	limit := x.m.Extensions().Limits.Events
	var chain []*tally
	var last *tally
	for sub >= x.own {
		c := x.causes[sub-x.own]
		if slices.Contains(chain, c.by) && (last == nil || c.by.e.Order > last.e.Order) {
			last = c.by
		}
		chain = append(chain, c.by)
		sub = c.of
	}
	if last != nil && last.failed == nil {
		last.failed = x.blame(last, "more than %d events follow one from the other (events), and it was registered last of those in the circle", limit)
	}
	name := ""
	if len(chain) > 0 {
		name = fmt.Sprintf(", the last of them by extension %q", chain[0].e.Name)
	}
	return fault.TooMuchWork.With(fmt.Sprintf("stoa: the request would lead to more than %d events that follow one from the other (events in %s)%s; nothing of it was done",
		limit, extension.LimitsKey, name))
}

// blame is a failure that is counted although no run of the extension has failed.
func (x *execution) blame(t *tally, format string, args ...any) error {
	err := fault.ExtensionLimit.With(fmt.Sprintf("stoa: extension %q: "+format, append([]any{t.e.Name}, args...)...))
	x.m.called(t.e.Name, x.m.began(), &extension.Outcome{Rev: x.rev}, err)
	return err
}
