package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

// stepAhead gives Raft the configurations behind the rendezvous at which this group waits, before the state
// has them. Raft lets no server campaign that knows of a committed step which Raft hasn't applied. The rendezvous was
// executed on the server that proposed the step, and may wait here for a group whose entries this server has
// not received, or after a restart doesn't know to be committed; and the only one that could lead that group
// may wait in the same way for this one. Raft's configuration follows from the log alone, so it needn't
// wait. The state's, which is a function of its applied index (M3), does. In Raft's half, of the loop.
func (g *group) stepAhead() {
	if g.blocked {
		g.giveAhead(g.steps(), "Raft has a change of a group's configuration ahead of the state, which waits for other groups")
	}
}

// giveAhead gives Raft those of the steps behind the state's that it hasn't got, in their order.
func (g *group) giveAhead(steps []item, why string) {
	config := g.r.cfg.Machine.Configuration(g.id)
	for _, it := range steps {
		next, ok := config.Next(*it.step)
		if ok && it.index > g.ahead {
			g.giveRaft(&it, next, !config.HasAll(next))
			g.r.cfg.Logger.Info(why, zap.Int("group", g.id), zap.Stringer("step", it.step), zap.Bool("held", g.held != nil))
		}
		config = next
	}
}

// giveRaft gives Raft a step that leads to a configuration, or holds it: until the state has it, if it brings in a
// server ahead of that; and if it takes this server's vote, which may be needed until that is sealed.
func (g *group) giveRaft(it *item, next *membership.Config, bringsInAhead bool) {
	g.release()
	g.ahead = it.index
	if bringsInAhead || next.Needs(g.r.cfg.ID) {
		held := *it
		g.held = &held
		g.stepBehind()
		return
	}
	g.node.ApplyConfChange(raftlog.ConfChange(it.step))
}

// stepBehind ends that a step is held once another one is in the log behind it. Raft may be one
// configuration behind the log, since neighbouring ones have no quorums apart, and not two.
func (g *group) stepBehind() {
	if g.held != nil && g.log.LastStep() > g.held.index {
		g.release()
	}
}

// release gives Raft the step that it has gone on without.
func (g *group) release() {
	if it := g.held; it != nil {
		g.held = nil
		g.node.ApplyConfChange(raftlog.ConfChange(it.step))
	}
}

// keepVote has Raft begin in the configuration in front of a step that took this server's vote, and isn't sealed.
func (g *group) keepVote(applied uint64) {
	id, c := g.r.cfg.ID, g.r.cfg.Machine.Configuration(g.id)
	if !c.Needs(id) {
		return
	}
	g.held = &item{index: applied, step: &membership.Step{Kind: membership.RemoveServer, ID: id}}
	voters := append(slices.Clone(c.Voters), id)
	slices.Sort(voters)
	g.log.SetConfState(&raftpb.ConfState{Voters: voters, Learners: c.Learners})
}

// steps are the committed changes of the configuration that are to be applied.
func (g *group) steps() (list []item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.committed {
		if len(list) == g.stepping {
			break
		}
		if it := &g.committed[i]; it.step != nil {
			list = append(list, *it)
		}
	}
	return list
}

// applyStep applies a change of this group's configuration: to Raft before Raft hears that
// the entry is applied, and to the state together with the index.
func (g *group) applyStep(it *item) {
	machine := g.r.cfg.Machine
	next, ok := machine.Configuration(g.id).Next(*it.step)
	if !ok { // proposed twice, by two leaders
		machine.Skip(g.id, it.index, it.term)
		g.finished(it)
		return
	}
	g.turn(func() {
		switch {
		case it.index > g.ahead:
			g.giveRaft(it, next, false)
		case g.held != nil && it.index == g.held.index && !next.Needs(g.r.cfg.ID):
			g.release()
		}
	})
	g.log.SetConfState(confState(next))
	machine.Configure(g.id, it.index, it.term, next)
	g.finished(it)
	g.r.cfg.Logger.Info("applied a change of a group's configuration", zap.Int("group", g.id), zap.Stringer("step", it.step),
		zap.Uint64("generation", next.Generation), zap.Int("voters", len(next.Voters)), zap.Int("learners", len(next.Learners)))
	g.r.reconfigured()
	g.r.lead.follow().run()
}

func confState(c *membership.Config) *raftpb.ConfState {
	return &raftpb.ConfState{Voters: c.Voters, Learners: c.Learners}
}
