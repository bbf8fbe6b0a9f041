package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
)

// A fenced server differs from a majority. Its log is sound, so it goes on to acknowledge entries
// and to vote; nothing that follows from its state may reach anybody: its machine refuses answers,
// it sends no snapshot, and hands its groups over. It asks one of those that agreed for a snapshot,
// and answers again when a check has found its new state to be theirs.

// judged notes what a rendezvous has done to the fence. It is called before other groups go on, so
// nothing that is applied later is in an answer.
func (r *Replica) judged(it *item, before *check.Fenced) {
	m := r.cfg.Machine
	verdict := it.entry.Checks() && it.entry.Commands[0].Kind == command.Verdict
	if verdict {
		at, how := m.Judged()
		if how == check.Agrees {
			r.checks.agreed.Store(true)
		}
		r.checks.mu.Lock()
		r.checks.rounds.Decided(at)
		r.checks.mu.Unlock()
	}
	now := m.Fence.Now()
	switch {
	case now == before:
		return
	case now == nil && !verdict:
		r.cfg.Logger.Warn("this member's state differed from that of a majority which is lost: it is the only one now, and serves what it has")
	case now == nil:
		r.cfg.Logger.Info("this member agrees with the majority again, and serves")
	default:
		r.cfg.Logger.Error("this member's state differs from that of the majority: it serves nothing until it has taken in theirs",
			zap.String("differs-in", m.Differing(now.By)), zap.Stringer("check", now.By.Place), zap.Uint64s("agree", now.By.Agree))
	}
	if r.cfg.Fenced != nil {
		r.cfg.Fenced(now)
	}
}

// tickFence has a fenced server do what ends that.
func (r *Replica) tickFence(now int64) {
	if now%int64(r.cfg.ElectionTicks) != 0 {
		return
	}
	fenced := r.cfg.Machine.Fence.Now()
	r.tellsOperators(fenced)
	if fenced == nil {
		return
	}
	r.stepDown(fenced)
	r.saysStuck()
	if fenced.Healed {
		r.wantCheck()
	} else {
		r.askState(fenced, now)
	}
}

// tellsOperators has a server that is fenced raise the alarm CORRUPT for itself: until that is in its state, also if it
// serves again before. The first attempt is lost where it hands over what it leads at the same time.
func (r *Replica) tellsOperators(fenced *check.Fenced) {
	own := r.cfg.ID
	switch {
	case !r.cfg.Machine.Fence.Untold() && !fenced.Differed():
	case slices.ContainsFunc(r.cfg.Machine.Alarms(), func(a *pb.AlarmMember) bool {
		return a.GetAlarm() == pb.AlarmType_CORRUPT && a.GetMemberID() == own
	}):
		r.toldOperators()
	default:
		r.raise(own, func(out Outcome) {
			if out.Err == nil {
				r.toldOperators() // and an operator may lower it at once
			}
		})
	}
}

func (r *Replica) toldOperators() {
	if r.cfg.Machine.Fence.Told() && r.cfg.Told != nil {
		r.cfg.Told()
	}
}

// saysStuck tells an operator who has made the file by hand why it has no end.
func (r *Replica) saysStuck() {
	why := ""
	switch {
	case len(r.Peers()) == 0:
		why = "there is no other member whose state it could take in"
	case !r.cfg.Machine.Checks():
		why = "members don't compare their states at this version of the cluster"
	}
	if why != "" && !r.checks.stuck {
		r.cfg.Logger.Warn("this member is fenced, and as it is now nothing ends that", zap.String("reason", why))
	}
	r.checks.stuck = why != ""
}

// stepDown hands this server's groups to one of those that agreed, or else to any: whoever leads
// answers those who have forwarded their requests.
func (r *Replica) stepDown(fenced *check.Fenced) {
	r.handOver(func(id uint64) bool { return slices.Contains(fenced.By.Agree, id) })
}

// handOver hands this server's groups to one of those that are preferred, or else to any.
func (r *Replica) handOver(preferred func(id uint64) bool) {
	r.groups[0].order(func(g *group) {
		if !g.leading {
			return // gather brings the others to the leader of this one
		}
		to := g.longest(preferred)
		if to == 0 {
			to = g.longest(func(uint64) bool { return true })
		}
		if to != 0 {
			r.TransferAll(to)
		}
	})
}

// heir is who gets this group instead of this server: the leader of group 0. But a fenced server can't
// send it what the log has no more; another one can, once it leads. In Raft's half of the leader.
func (g *group) heir(leader uint64) uint64 {
	if g.r.cfg.Machine.Fence.Now() == nil || g.reaches(leader) {
		return leader
	}
	if other := g.longest(func(id uint64) bool { return id != leader }); other != 0 {
		return other
	}
	return leader
}

// reaches reports whether this group's log has all that a server lacks.
func (g *group) reaches(id uint64) (does bool) {
	first, err := g.log.FirstIndex()
	g.node.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		does = does || other == id && err == nil && pr.Match+1 >= first
	})
	return does
}

// askState asks another server for its state: one of those that agreed as long as that answers, or
// else any; what comes is judged before it is shown.
func (r *Replica) askState(fenced *check.Fenced, now int64) {
	var agreed, others []uint64
	for _, id := range r.Peers() {
		if slices.Contains(fenced.By.Agree, id) {
			agreed = append(agreed, id)
		} else {
			others = append(others, id)
		}
	}
	peers := append(agreed, others...)
	if len(peers) == 0 {
		return
	}
	timeout := int64(r.cfg.ElectionTicks)
	if now/timeout%healTimeouts == 0 {
		r.checks.refused.Add(1) // its state may be of no use to this server, or never come
	}
	to := peers[r.checks.refused.Load()%uint32(len(peers))]
	r.calls.ask(to, methodState, nil, now+timeout, func(_ []byte, err error) {
		if err != nil {
			r.checks.refused.Add(1)
		}
	})
}

// healTimeouts is for how many election timeouts a fenced server asks the same one.
const healTimeouts = 30

// giveState sends this server's state to one that is fenced.
func (r *Replica) giveState(to uint64, reply func([]byte, error)) {
	if r.cfg.Machine.Fence.Now() != nil {
		reply(nil, fault.Fenced)
		return
	}
	r.cfg.Network.Snapshot(to)
	reply(nil, nil)
}

// withheld reports whether a message must not leave a fenced server: a candidacy, since it would
// stamp by its own state, before it has another's; and its state. Raft hears that the state was sent, and probes: after
// a failure it would want to send it for ever, to a peer that may have all entries and only has not said so yet, as
// before it can lead in this server's place.
func (g *group) withheld(m *raftpb.Message) bool {
	fenced := g.r.cfg.Machine.Fence.Now()
	if fenced == nil {
		return false
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return !fenced.Healed
	case raftpb.MsgSnap:
		peer := m.GetTo()
		g.order(func(g *group) { g.node.ReportSnapshot(peer, raft.SnapshotFinish) })
		return true
	}
	return false
}
