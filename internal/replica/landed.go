package replica

import (
	"errors"

	"github.com/stoa-kv/stoa/internal/fault"
)

// landed answers a write that another server has carried out, once this one has
// applied it: the client's reads here then reflect it, and no header of a later answer is below its revision. This is in
// the log at the index, or before, and stamps increase along the log. The group is that of the generation in which the write
// was sent: if it is gone, its end has been applied here, though its partition may have another group again.
func (f *Calls) landed(w *Write, out Outcome, sender uint32) {
	r := f.r.Load()
	switch {
	case out.Group == noneOfTheSender:
		f.landsLater(w, out)
		return
	case !r.resized.has(out.Group, sender):
		f.show(out.Rev)
		w.Done(out)
		return
	}
	r.awaitApplied(out.Group, out.Index, w.deadline, func(err error) {
		switch {
		case f.r.Load() != r: // and the one in its place may be behind it
			f.landed(w, out, sender)
		case errors.Is(err, fault.Timeout):
			w.fail(err)
		default:
			switch {
			case err != nil: // this server stops
			case len(r.groups) == 1 || w.Command.Kind.MayWrite():
				r.closed[out.Group].raise(out.Rev) // as finished: the group's loop may do so later
			default:
				f.show(out.Rev)
			}
			w.Trace.reached(Reflected, out.Group)
			w.Done(out)
		}
	})
}

// landing is a write that was carried out in a group which this server hadn't when it sent it, since the number of partitions has changed
// meanwhile. This server may be behind that.
type landing struct {
	w   *Write
	out Outcome
}

// shows reports whether this server has applied the write. While it hasn't one of its partitions, whose group comes with a later
// generation, none of what it has is closed through the write's revision, which is of that one.
func (l *landing) shows(r *Replica) bool {
	parts := l.w.Parts
	if parts&^r.all() != 0 {
		parts = r.all()
	}
	for p := range parts.Each() {
		if r.Closed(p) < l.out.Rev {
			return false
		}
	}
	return true
}

// landsLater answers such a write once this server has applied it: with one of the next ticks, if not at once.
func (f *Calls) landsLater(w *Write, out Outcome) {
	f.mu.Lock()
	f.landing = append(f.landing, landing{w, out})
	f.mu.Unlock()
	f.land(f.now.Load())
}

// land answers the writes that have been applied here, all if this server stops, and fails those that have timed out.
func (f *Calls) land(now int64) {
	r := f.r.Load()
	f.mu.Lock()
	rest, landed := extract(f.landing, func(l landing) bool { return f.stopped != nil || l.shows(r) })
	rest, late := extract(rest, func(l landing) bool { return l.w.deadline <= now })
	f.landing = rest
	f.mu.Unlock()
	for _, l := range landed {
		f.show(l.out.Rev)
		l.w.Done(l.out)
	}
	for _, l := range late {
		l.w.fail(fault.Timeout)
	}
}
