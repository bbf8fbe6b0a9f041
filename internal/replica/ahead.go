package replica

import (
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
// wait. The state's, which is a function of its applied index (M3), does. A server that is new waits for the
// state (newcomer). In Raft's half, of the loop.
func (g *group) stepAhead() {
	if !g.blocked {
		return
	}
	config := g.r.cfg.Machine.Configuration(g.id)
	for _, it := range g.steps() {
		next, ok := config.Next(*it.step)
		if it.index > g.ahead {
			g.giveAhead(&it, ok, ok && !config.HasAll(next))
		}
		config = next
	}
}

// giveAhead gives Raft a step, unless it has been made before, and says that it is applied.
func (g *group) giveAhead(it *item, changes, bringsIn bool) {
	g.bringIn()
	g.ahead = it.index
	switch {
	case !changes:
		return
	case bringsIn:
		g.newcomer = it
		g.stepBehind()
	default:
		g.node.ApplyConfChange(raftlog.ConfChange(it.step))
	}
	g.r.cfg.Logger.Info("Raft has a change of a group's configuration ahead of the state, which waits for other groups",
		zap.Int("group", g.id), zap.Stringer("step", it.step), zap.Bool("without-newcomer", g.newcomer != nil))
}

// stepBehind brings the newcomer in once another step is in the log behind its own. Raft may be one
// configuration behind the log, since neighbouring ones have no quorums apart, and not two.
func (g *group) stepBehind() {
	if g.newcomer != nil && g.log.LastStep() > g.newcomer.index {
		g.bringIn()
	}
}

// bringIn gives Raft the configuration with the server that it has gone on without.
func (g *group) bringIn() {
	if it := g.newcomer; it != nil {
		g.newcomer = nil
		g.node.ApplyConfChange(raftlog.ConfChange(it.step))
	}
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
			g.node.ApplyConfChange(raftlog.ConfChange(it.step))
		case g.newcomer != nil && it.index == g.newcomer.index:
			g.bringIn()
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
