package replica

import "github.com/stoa-kv/stoa/internal/fault"

// SubmitRun is Submit for writes of one session with one home, in their order: what
// they cost in locks and wake-ups, they cost together.
func (r *Replica) SubmitRun(writes []*Write) {
	if len(writes) == 1 || !r.seq.IsOpen() {
		for _, w := range writes {
			r.Submit(w)
		}
		return
	}
	r.groups[writes[0].Home].locals(writes)
}

// locals takes writes that pass through this group's log; they will be part of its
// next entries.
func (g *group) locals(writes []*Write) {
	if g.pending.Add(int64(len(writes))) > MaxPendingWrites {
		g.pending.Add(-int64(len(writes)))
		for _, w := range writes {
			w.fail(fault.TooManyRequests)
		}
		return
	}
	g.put(func(in *inbox) {
		if !in.stopped {
			in.writes, writes = append(in.writes, writes...), nil
		}
	})
	g.r.resubmit(writes)
}
