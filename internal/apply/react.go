package apply

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// react runs the event extensions on what a command has changed, at the same
// revision: change by change, those of a change in the order of their registration
// (EZK §3.3), and then on what they have changed themselves. How often handlers set
// off handlers is limited, and how much work all of them do for one request. A
// handler that fails loses its own writes; the command and other handlers keep
// theirs.
func (x *execution) react() {
	reg := x.m.Extensions()
	if x.sub == 0 || !reg.HasEvents() {
		return
	}
	direct, chained, steps := x.sub, 0, int64(0)
	for sub := int64(0); sub < x.sub; sub++ {
		if c := x.changed(sub); !reg.Concerns(c.Kv.Key()) || isNotice(c) {
			continue
		}
		c := *x.changed(sub) // handlers add changes behind it
		t := x.eventType(c)
		for _, e := range reg.Events(t, c.Kv.Key()) {
			standing := standingOf(view{x}, e.StateKey())
			if standing.Disabled {
				continue
			}
			if sub >= direct {
				chained++
			}
			switch {
			case chained > reg.Limits.Events:
				x.stopEvents(e, standing, fmt.Sprintf("more than %d events follow from one request's own", reg.Limits.Events))
				return
			case steps >= reg.Limits.EventSteps:
				x.stopEvents(e, standing, fmt.Sprintf("the events of one request took more than %d steps", reg.Limits.EventSteps))
				return
			}
			ev := &extension.Event{Type: t, Kv: c.Kv, Prev: c.Prev, Client: x.client}
			if sub >= direct {
				ev.Prev = x.previous(c)
			}
			steps += x.reactTo(e, standing, ev, c.Sub)
		}
	}
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

func (x *execution) eventType(c store.Change) extension.EventType {
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

// previous is what a handler's change has replaced. The change itself knows what was
// there before the command, but handlers may change a key more than once.
func (x *execution) previous(c store.Change) kvwire.KeyValue {
	changes := x.changes[x.from:]
	if x.local == several {
		p, _ := x.store(c.Kv.Key())
		changes = x.spread[p]
	}
	at := sort.Search(len(changes), func(i int) bool { return changes[i].Sub >= c.Sub })
	for i := at - 1; i >= 0; i-- {
		switch o := &changes[i]; {
		case isNotice(o) || !bytes.Equal(o.Kv.Key(), c.Kv.Key()):
		case o.Delete:
			return kvwire.KeyValue{}
		default:
			return o.Kv
		}
	}
	return c.Prev
}

// writeSteps is what a write of a handler counts for in the steps of a request's
// events, beside what the handler has paid itself: carrying it out, and looking for
// those whom it concerns in turn.
const writeSteps = 200

// reactTo runs a handler and returns the steps that it took.
func (x *execution) reactTo(e *extension.Extension, standing extension.Standing, ev *extension.Event, sub int64) int64 {
	out, err := x.supervise(e, standing, func() (*extension.Outcome, error) { return e.Event(view{x}, &x.m.Extensions().Limits, x.rev, ev) })
	if err == nil && out.Suppress {
		x.hide(e, sub)
	}
	return out.Usage.Steps + int64(len(out.Writes))*writeSteps
}

// stopEvents lets the events that are left go unheard.
func (x *execution) stopEvents(e *extension.Extension, standing extension.Standing, reason string) {
	err := fault.ExtensionLimit.With(fmt.Sprintf("stoa: extension %q: %s", e.Name, reason))
	x.rate(e, standing, err)
	x.m.called(e.Name, x.m.began(), &extension.Outcome{}, err)
}
