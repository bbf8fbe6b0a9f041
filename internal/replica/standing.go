package replica

// Standing is how one group stands on this server.
type Standing struct {
	Leader, Term       uint64 // Leader is 0 if this server knows of none
	Committed, Applied uint64
	Closed             int64
	Pending            int64 // writes that wait for their answer here
}

// Standing tells how a group stands. The numbers are read one after the other,
// so they need not be those of one moment.
func (r *Replica) Standing(group int) Standing {
	g := r.groups[group]
	return Standing{
		Leader: g.leaderSeen.Load(), Term: g.curTerm.Load(),
		Committed: g.commit.Load(), Applied: g.applied.Load(),
		Closed: r.Closed(group), Pending: g.pending.Load(),
	}
}
