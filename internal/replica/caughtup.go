package replica

import (
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// readyPercent of the leader's log is what a learner must have before it gets a vote, as in
// etcd.
const readyPercent = 90

// CaughtUp reports on the leader whether a follower has nearly all of the log of each
// group, and doesn't wait for a snapshot.
func (r *Replica) CaughtUp(id uint64, done func(bool)) {
	var missing atomic.Int64
	var behind atomic.Bool
	missing.Store(int64(len(r.groups)))
	for _, g := range r.groups {
		g.order(func(g *group) {
			if !g.leading || !g.caughtUp(id) {
				behind.Store(true)
			}
			if missing.Add(-1) == 0 {
				g.effects.add(func() { done(!behind.Load()) })
			}
		})
	}
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
