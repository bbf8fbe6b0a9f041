package replica

// Standing is the status of one group on this server.
type Standing struct {
	Leader, Term       uint64 // Leader is 0 if this server knows of none
	Committed, Applied uint64
	Closed             int64
	Pending            int64 // writes that wait for their answer here
}

// Standing returns the status of a group. The numbers are read one after the
// other, so they need not be consistent.
func (r *Replica) Standing(group int) Standing {
	g := r.groups[group]
	return Standing{
		Leader: g.leaderSeen.Load(), Term: g.term.Load(),
		Committed: g.commit.Load(), Applied: g.applied.Load(),
		Closed: r.Closed(group), Pending: g.pending.Load(),
	}
}
