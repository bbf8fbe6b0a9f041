package replica

// SubmitRun is Submit for writes of one session with one home, in their order,
// with the locks and wake-ups of a single one.
func (r *Replica) SubmitRun(writes []*Write) {
	if len(writes) == 1 || !r.seq.IsOpen() {
		for _, w := range writes {
			r.Submit(w)
		}
		return
	}
	r.groups[writes[0].Home].accept(writes...)
}
