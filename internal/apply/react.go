package apply

import (
	"fmt"
	"sort"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// Charges of event handlers beside the steps of the script. A step is some 5 to 10 ns
// in all of them.
const (
	// runSteps is a run that does nothing: finding the handler, its table, its frame.
	runSteps = 200
	// writeSteps is a key that is written, or a notice.
	writeSteps = 200
	// passSteps is an extension that is disabled.
	passSteps = 5
)

// cause is why there is a change that the command has not made itself.
type cause struct {
	by   *tally
	of   int64           // the change that it reacted to
	prev kvwire.KeyValue // the value that it has replaced
}

// react runs the event extensions on the changes of a command, at the same
// revision: change by change, those of a change in the order of their registration
// (EZK §3.3), and then on the changes that they made themselves. A handler that fails loses
// its own writes; the command and other handlers keep theirs. Both the depth to which
// handlers trigger handlers and the work of all of them for one command are limited: the
// error is a [fault.TooMuchWork], and then some have not run.
func (x *execution) react() error {
	reg := x.m.Extensions()
	if x.sub == 0 || !reg.HasEvents() {
		return nil
	}
	x.own, x.causes, x.told = x.sub, x.causes[:0], 0
	links, until, woken, steps, most := 0, x.own, int64(0), int64(0), x.eventSteps(x.expiring)
	for _, t := range x.tallies {
		t.steps = 0 // of an attempt that was rolled back
	}
	for sub := int64(0); sub < x.sub; sub++ {
		x.told = int(min(sub, x.own))
		if sub == until { // all behind it has been caused by those from the last link
			links, until = links+1, x.sub
		}
		if c := x.changed(sub); !reg.Concerns(c.Kv.Key()) || isNotice(c) {
			continue
		}
		ev := x.event(sub)
		concerned := reg.Events(ev.Type, ev.Kv.Key())
		if len(concerned) > 0 && sub < x.own {
			woken++
		}
		for _, e := range concerned {
			t := x.tally(e)
			t.direct = t.direct || sub < x.own
			switch {
			case t.standing.Disabled:
				steps += passSteps
			case links > reg.Limits.Events:
				return x.tooManyEvents(sub)
			default:
				n, err := x.reactTo(t, ev, sub)
				if again(err) {
					return err
				}
				steps += n
			}
			if steps > most {
				return x.tooManySteps(woken)
			}
		}
	}
	return nil
}

// changed is the command's change number sub. The pointer is good until the next
// change.
func (x *execution) changed(sub int64) *store.Change {
	if x.local != several {
		return &x.changes[x.from+int(sub)]
	}
	for _, changes := range x.spread {
		i := sort.Search(len(changes), func(i int) bool { return changes[i].Sub >= sub })
		if i < len(changes) && changes[i].Sub == sub {
			return &changes[i]
		}
	}
	panic(fmt.Sprintf("apply: change %d.%d of this command is missing", x.rev, sub))
}

// event is the event that handlers get for a change. The change itself has the key-value
// from before the command, but handlers may change a key more than once.
func (x *execution) event(sub int64) *extension.Event {
	c := x.changed(sub)
	ev := &extension.Event{Type: x.eventType(c), Kv: c.Kv, Prev: c.Prev, Client: x.client}
	if sub >= x.own {
		ev.Prev = x.causes[sub-x.own].prev
	}
	return ev
}

func (x *execution) eventType(c *store.Change) extension.EventType {
	switch {
	case c.Delete && c.Sub < x.expired:
		return extension.Expired
	case c.Delete:
		return extension.Deleted
	case c.Kv.Version() == 1:
		return extension.Created
	}
	return extension.Modified
}

// reactTo runs a handler and returns the steps that are charged for it, and its error. To be told of a change takes
// the right to read its key, as it is now.
func (x *execution) reactTo(t *tally, ev *extension.Event, sub int64) (int64, error) {
	x.runAs = x.registrar(t.e.Name)
	out, err := x.supervise(t, func() (*extension.Outcome, error) {
		if err := x.runAs.MayRead(ev.Kv.Key(), nil); err != nil && x.m.Level() >= levelOfReadableEvents {
			return &extension.Outcome{Rev: x.rev, Handler: ev.Type.String(), Key: ev.Kv.Key()}, err
		}
		return t.e.Event(proxy{view{x}}, &x.m.Extensions().Limits, x.rev, ev, x.m.profile(t.e.Name))
	})
	if err == nil {
		x.commit(out, func(prev kvwire.KeyValue) { x.causes = append(x.causes, cause{by: t, of: sub, prev: prev}) })
		if out.Suppress {
			x.hide(t.e, sub)
		}
	}
	steps := runSteps + out.Usage.Steps + int64(len(out.Writes)+len(out.Notices))*writeSteps
	t.steps += steps
	return steps, err
}
