package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

// A change of members is decided by a rendezvous of all groups (apply/member.go). The
// groups follow one by one: with each tick, and after each step, the server that stamps
// compares the configuration of each group with the list, and has the groups that differ
// propose the next step. A successor does the same, and needs no memory of it.
//
// Raft lets no server campaign that knows of a committed step which it hasn't applied. So
// nothing in front of a step may wait for another group, whose leader may be the one that
// is missing (M2 of package membership): while groups follow, no rendezvous is stamped, and a
// group proposes its step once it has none left. Nor may one come behind a step: a group
// with a new voter that hasn't started yet may not be able to commit, and group 0 could not
// follow before the others had committed their copies.

// reconfiguration is the step that a group is to propose, and the steps and rendezvous in
// its log. In Raft's half.
type reconfiguration struct {
	wanted *membership.Step
	epoch  uint64 // in which it is wanted
	// Indexes of the last step and the last rendezvous that this leader has appended.
	step, meeting uint64
}

// note notes what a leader appends.
func (c *reconfiguration) note(e *raftpb.Entry, rendezvous bool) {
	switch {
	case e.GetType() != raftpb.EntryNormal:
		c.step = e.GetIndex()
	case rendezvous:
		c.meeting = e.GetIndex()
	}
}

// reconfigure has the groups propose the steps that are due. With mu held.
func (l *leadership) reconfigure() {
	list, configs := l.r.cfg.Machine.Membership(), l.r.cfg.Machine.Configurations()
	if l.phase == opened {
		l.hold(!membership.Sealed(list, configs))
	}
	if m := list.Find(l.r.cfg.ID); m == nil && !l.r.alone() {
		l.resign(list)
		return
	}
	if l.phase != opened {
		return
	}
	epoch := l.epoch
	for _, due := range membership.DueSteps(list, configs) {
		l.r.groups[due.Group].order(func(g *group) {
			g.change.wanted, g.change.epoch = &due.Step, epoch
		})
	}
}

// resign hands the groups to the voter whose log of group 0 is the longest, since this
// server is not a member any more.
func (l *leadership) resign(list *membership.List) {
	if !l.groups[0].leading {
		return // the leader of group 0 gets the others
	}
	now := l.r.now()
	if l.resigned != 0 && now-l.resigned < int64(l.r.cfg.ElectionTicks) {
		return
	}
	l.resigned = now
	l.r.groups[0].order(func(g *group) {
		if to := g.longest(func(id uint64) bool { return list.Find(id) != nil }); to != 0 {
			l.r.TransferAll(to)
		}
	})
}

// longest is the other voter, of those that are suitable and not silent, whose log is the
// longest, or 0. In Raft's half of the leader.
func (g *group) longest(suitable func(id uint64) bool) (id uint64) {
	match := uint64(0)
	g.node.WithProgress(func(other uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypePeer && other != g.r.cfg.ID && suitable(other) && g.r.alive(other) && (id == 0 || pr.Match > match) {
			id, match = other, pr.Match
		}
	})
	return id
}

// proposeStep proposes the wanted step once this group has no rendezvous left.
func (g *group) proposeStep() {
	applied := g.applied.Load()
	c := &g.change
	if !g.leading || c.wanted != nil && !g.wants(c.wanted) {
		c.wanted = nil
	}
	if c.wanted == nil || c.step > applied || c.meeting > applied || g.meets() {
		return
	}
	s := c.wanted
	c.wanted = nil
	g.r.cfg.Logger.Info("proposing a change of a group's configuration", zap.Int("group", g.id),
		zap.Stringer("step", s), zap.Uint64("generation", s.Generation))
	// If Raft puts an empty entry in its place, the next tick asks again.
	_ = g.node.ProposeConfChange(raftlog.ConfChange(s))
}

// wants reports whether a step is still the next one.
func (g *group) wants(s *membership.Step) bool {
	return g.r.lead.current(g.change.epoch) && g.r.cfg.Machine.Configuration(g.id).Steps == s.Number
}

// meets reports whether stamped rendezvous wait to be proposed.
func (g *group) meets() (waiting bool) {
	g.r.seq.Queue(g.id, func() { waiting = slices.ContainsFunc(g.queue, func(q queued) bool { return q.meets }) })
	return waiting
}

// follow goes on with a change of members at once.
func (l *leadership) follow() effects { return l.do(l.reconfigure) }

// reconfigured is called after the list of members or a group's configuration has changed.
func (r *Replica) reconfigured() {
	r.tellSettled() // also one that is let go
	if r.peers.follow(r) && r.cfg.Peers != nil {
		r.cfg.Peers()
	}
}
