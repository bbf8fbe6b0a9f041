package replica

import (
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The number of partitions changes at a rendezvous of all groups (command.Resize), at which
// their generation ends: it is the last entry that its leader stamps, and the last that this
// replica executes. DESIGN.md, "Changing the number of partitions".

// resized is what a replica knows of its generation and its end.
type resized struct {
	groups *membership.Groups
	halted atomic.Bool // the generation has ended here
	// eager is the tick until which this server tries to lead.
	eager atomic.Int64
	// asked is the tick at which a server without a state asked for one last.
	asked atomic.Int64
}

// Bounds, in ticks and election timeouts.
const (
	eagerEvery = 3
	stuckAfter = 2
)

func (r *Replica) generation() uint32 { return r.resized.groups.Generation }

// has reports whether a partition has the group here that it had in an earlier generation.
func (s *resized) has(partition int, earlier uint32) bool {
	return partition < len(s.groups.Born) && s.groups.Born[partition] <= earlier
}

// all is the set of partitions.
func (r *Replica) all() placement.Set { return placement.All(len(r.groups)) }

// number is the group's among all that ever were.
func (g *group) number() int { return int(g.r.resized.groups.Number(g.id)) }

// executed halts the replica if the generation has ended. If the change was refused, stamping
// has to begin again.
func (s *resized) executed(r *Replica, it *item) {
	switch {
	case !it.entry.Resizes():
	case r.cfg.Machine.Groups().Next == 0 && !r.cfg.Stops:
		r.lead.reopen().run()
	default:
		s.halted.Store(true)
		r.cfg.Logger.Info("the number of partitions changes", zap.Int("from", len(r.groups)), zap.Int("to", r.cfg.Machine.Groups().Next))
		r.cfg.Resized()
	}
}

// reopen ends an epoch that was sealed for nothing. A new one begins with the next tick.
func (l *leadership) reopen() effects {
	return l.do(func() {
		if l.phase == opened && !l.r.seq.IsOpen() {
			l.end()
		}
	})
}

// tick campaigns, on a server that led before the change, until there are leaders: votes are
// refused by servers that still know it as such, and by those that aren't there yet.
//
// A server that lacks the end of the log of a group that is gone can't get it from those that
// have gone on, and waits at a rendezvous with it, the last one at the latest. It asks them for
// their state.
func (s *resized) tick(r *Replica, now int64) {
	if now < s.eager.Load() && now%eagerEvery == 0 && !r.seq.IsOpen() {
		r.campaign()
	}
	timeout := int64(r.cfg.ElectionTicks)
	waits := now - r.meet.oldest(now)
	if s.halted.Load() || waits < stuckAfter*timeout || waits%timeout != 0 {
		return
	}
	for _, peer := range r.Peers() {
		r.askForState(peer, now)
	}
}

func (r *Replica) askForState(from uint64, now int64) {
	r.calls.ask(from, methodBehind, nil, now+int64(r.cfg.ElectionTicks), unheard)
}

// missed is called with the messages to groups that this server hasn't. One that joins begins with the
// first generation, and gets the groups of the present one with a leader's state. But they may have
// no leader without its vote: then it asks the candidate for its state.
func (s *resized) missed(r *Replica, group uint32, m *raftpb.Message) {
	if !asksForVote(m) || s.groups.Gone(group) || len(r.cfg.Machine.Membership().Members) > 0 {
		return
	}
	now, last := r.now(), s.asked.Load()
	if last != 0 && now < last+int64(r.cfg.ElectionTicks) || !s.asked.CompareAndSwap(last, now) {
		return
	}
	r.askForState(m.GetFrom(), now)
}

// helped sends this server's state to one that is of an earlier generation.
func (r *Replica) helped(to uint64, generation uint32, reply func([]byte, error)) {
	if generation < r.generation() && r.cfg.Machine.Fence.Now() == nil {
		r.cfg.Network.Snapshot(to)
	}
	reply(nil, nil)
}
