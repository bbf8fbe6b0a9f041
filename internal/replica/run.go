package replica

import "github.com/stoa-kv/stoa/internal/fault"

// SubmitRun is Submit for writes of one session to one partition, in their order:
// they reach the group's inbox together, or not at all.
func (r *Replica) SubmitRun(writes []*Write) {
	if len(writes) == 1 || !r.seq.IsOpen() {
		for _, w := range writes {
			r.Submit(w)
		}
		return
	}
	r.groups[writes[0].Parts.First()].locals(writes)
}

func (g *group) locals(writes []*Write) {
	if g.pending.Add(int64(len(writes))) > MaxPendingWrites {
		g.pending.Add(-int64(len(writes)))
		for _, w := range writes {
			w.fail(fault.TooManyRequests)
		}
		return
	}
	g.put(func(in *inbox) { in.writes = append(in.writes, writes...) })
}
