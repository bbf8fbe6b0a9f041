package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// readyPercent of the leader's log is what a learner must have before it gets a vote, as in
// etcd.
const readyPercent = 90

// CaughtUp reports on the leader whether a follower has nearly all of the log of each
// group, and doesn't wait for a snapshot. It looks by itself: a loop that is about to end wouldn't.
func (r *Replica) CaughtUp(id uint64) bool {
	for _, g := range r.groups {
		is := false
		g.turn(func() { is = g.leading && g.caughtUp(id) })
		g.attend() // for those who have found Raft's half taken
		if !is {
			return false
		}
	}
	return true
}

// caughtUp is CaughtUp of one group. In Raft's half.
func (g *group) caughtUp(id uint64) bool {
	var theirs, ours uint64
	snapshot := true
	g.node.WithProgress(func(of uint64, _ raft.ProgressType, pr tracker.Progress) {
		switch of {
		case id:
			theirs, snapshot = pr.Match, pr.State == tracker.StateSnapshot
		case g.r.cfg.ID:
			ours = pr.Match
		}
	})
	return !snapshot && theirs*100 >= ours*readyPercent
}
