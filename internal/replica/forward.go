package replica

import (
	"errors"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Submit routes a write: into this server's own groups if it stamps, else to
// the server that does, now or once there is one. Either Done is called once.
func (r *Replica) Submit(w *Write) {
	if w.Parts&^r.all() != 0 { // routed before the number of partitions changed
		w.fail(fault.Moved)
		return
	}
	epoch := r.seq.Epoch()
	if w.Epoch != 0 && w.Epoch != epoch {
		w.fail(fault.LeaderChanged)
		return
	}
	if epoch != 0 {
		w.Trace.reached(Accepted, w.Parts.First())
		switch {
		case w.Session:
			r.groups[w.Home].accept(w)
		case w.System || w.Parts.Len() != 1:
			r.submitMulti(w)
		default:
			r.groups[w.Parts.First()].accept(w)
		}
		return
	}
	r.limit(w)
	f := r.calls
	c := &call{
		method:   methodWrite,
		body:     encodeWrite(w),
		trace:    w.Trace.forward(),
		deadline: w.deadline,
		local:    func() { f.r.Load().Submit(w) },
	}
	c.done = func(body []byte, err error) {
		w.Trace.reached(Answered, 0)
		if err != nil {
			w.fail(err)
			return
		}
		out, err := decodeOutcome(w.Command.Request(), body)
		if err != nil {
			w.fail(err)
			return
		}
		f.landed(w, out, c.sender)
	}
	f.start(c)
}

// landed answers a write that another server has carried out, once this one has
// applied it: the client's reads here then reflect it, and no header of a later answer is below its revision. This is in
// the log at the index, or before, and stamps increase along the log. The group is that of the generation in which the write
// was sent: if it is gone, its end has been applied here, though its partition may have another group again.
func (f *Calls) landed(w *Write, out Outcome, sender uint32) {
	r := f.r.Load()
	if !r.resized.has(out.Group, sender) {
		f.show(out.Rev) // of a later group this server may have applied nothing yet
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

// show notes a revision that a header has, and that the cluster has committed.
func (f *Calls) show(rev int64) {
	for old := f.shown.Load(); rev > old && !f.shown.CompareAndSwap(old, rev); old = f.shown.Load() {
	}
}
