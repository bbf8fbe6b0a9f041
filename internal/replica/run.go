package replica

import "slices"

// SubmitRun is Submit for writes of one session with one home, in their order,
// with the locks and wake-ups of a single one.
func (r *Replica) SubmitRun(writes []*Write) {
	gone := func(w *Write) bool { return w.Parts&^r.all() != 0 }
	if len(writes) == 1 || !r.seq.IsOpen() || slices.ContainsFunc(writes, gone) {
		for _, w := range writes {
			r.Submit(w)
		}
		return
	}
	r.groups[writes[0].Home].accept(writes...)
}
