package replica

import "github.com/stoa-kv/stoa/internal/fault"

// Submit routes a write: into this server's own groups if it stamps, else to
// the server that does, now or once there is one. Either Done is called once.
func (r *Replica) Submit(w *Write) {
	if w.Parts&^r.all() != 0 { // routed before the number of partitions changed
		w.fail(fault.Moved)
		return
	}
	epoch := r.seq.Epoch()
	if w.Epoch != 0 && w.Epoch != epoch {
		w.fail(fault.TimeoutLeaderFail)
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

// show notes a revision that a header has, and that the cluster has committed.
func (f *Calls) show(rev int64) { raise(&f.shown, rev) }
