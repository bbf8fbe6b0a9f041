package replica

import (
	"fmt"
	"runtime"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
)

// stampAt remembers the highest stamp of an entry that this server, as the
// leader, has appended.
type stampAt struct {
	index uint64
	stamp int64
}

// item is a committed entry that waits to be applied.
type item struct {
	index, term uint64
	entry       command.Entry
	step        *membership.Step // of the group's configuration, nil in nearly all
}

// ready processes Raft's Readys until there is none.
func (g *group) ready() {
	for g.node.HasReady() {
		rd := g.node.Ready()
		if rd.HardState != nil && !raft.IsEmptyHardState(rd.HardState) {
			g.hardState(rd.HardState)
		}
		if rd.SoftState != nil {
			g.leader = rd.SoftState.Lead
			g.leading = rd.SoftState.RaftState == raft.StateLeader
			g.leaderSeen.Store(g.leader)
		}
		if rd.SoftState != nil || rd.HardState != nil {
			g.effects.add(g.r.lead.report(g)...)
		}
		for _, m := range rd.Messages {
			g.dispatch(m)
		}
	}
}

// hardState publishes the term before any message of this Ready leaves, and
// moves C before a commit index does (invariants 2 and 3).
func (g *group) hardState(hs *raftpb.HardState) {
	if t := hs.GetTerm(); t != g.term.Load() {
		g.term.Store(t)
		g.stamps = nil
		g.traced = nil
		g.change = reconfiguration{}
	}
	commit := hs.GetCommit()
	for len(g.stamps) > 0 && g.stamps[0].index <= commit {
		g.r.seq.Commit(g.stamps[0].stamp)
		g.stamps = g.stamps[1:]
	}
	g.commit.Store(commit)
}

func (g *group) dispatch(m *raftpb.Message) {
	switch m.GetTo() {
	case raft.LocalAppendThread:
		g.append(m)
	case raft.LocalApplyThread:
		g.deliver(m)
	default:
		if !g.withheld(m) {
			g.tellCommit(m)
			g.send(m)
		}
	}
}

func (g *group) send(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		// Never one group's state, but the server's cut (design: snapshots).
		peer := m.GetTo()
		if !g.r.cfg.Machine.Configuration(g.id).Has(peer) {
			// Raft is ahead of the state, which doesn't know this server yet. Raft asks again.
			g.order(func(g *group) { g.node.ReportSnapshot(peer, raft.SnapshotFailure) })
			return
		}
		g.snapshotTo(peer, m.GetSnapshot().GetMetadata().GetIndex())
		for _, other := range g.r.groups {
			if other != g {
				other.order(func(o *group) { o.snapshotTo(peer, 0) })
			}
		}
		g.r.cfg.Network.Snapshot(peer)
		return
	}
	g.r.cfg.Network.Raft(m.GetTo(), g.number(), m)
}

// append hands entries and hard state to the disk. The responses are sent after
// that; some of them go to other servers.
func (g *group) append(m *raftpb.Message) {
	var hs *raftpb.HardState
	if m.Term != nil {
		hs = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if g.leading {
		g.noteEntries(m.GetEntries())
	}
	g.expect(m.GetEntries())
	records := g.log.Append(hs, m.GetEntries())
	g.stepBehind()
	responses := g.sparingly(m.GetResponses())
	if len(responses) == 0 {
		// A new term, or nothing: a commit index alone makes no record, since a
		// restarted server learns it again.
		if len(records) > 0 {
			g.r.cfg.Disk.Append(g.id, records, nil)
		}
		return
	}
	if len(g.traced) > 0 {
		if of := g.tracedIn(m.GetEntries()); of != nil {
			g.r.cfg.Disk.Append(g.id, records, func() {
				of.reached(Logged, g.id)
				g.persisted(responses)
			})
			return
		}
	}
	g.r.cfg.Disk.Append(g.id, records, func() { g.persisted(responses) })
}

// acknowledged is the last acknowledgement that this follower gave.
type acknowledged struct {
	to, term, index uint64
	stale           bool // a tick has passed since, or it may be lost
}

// sparingly leaves out an acknowledgement that repeats the last one. Raft
// answers every MsgApp, also those that only tell how far the leader has
// committed: half of them, where writes come one by one. Once a tick it is sent
// nevertheless, since an acknowledgement may be lost, and the leader asks again
// after a gap.
func (g *group) sparingly(responses []*raftpb.Message) []*raftpb.Message {
	return slices.DeleteFunc(responses, func(m *raftpb.Message) bool {
		if m.GetType() != raftpb.MsgAppResp || m.GetTo() == g.r.cfg.ID {
			return false
		}
		ack := acknowledged{to: m.GetTo(), term: m.GetTerm(), index: m.GetIndex()}
		if m.GetReject() {
			ack = acknowledged{}
		} else if ack == g.acked {
			return true
		}
		g.acked = ack
		return false
	})
}

// persisted runs on the disk's goroutine.
func (g *group) persisted(responses []*raftpb.Message) {
	own := responses[:0:0]
	for _, m := range responses {
		if m.GetTo() == g.r.cfg.ID {
			own = append(own, m)
		} else {
			g.send(m)
		}
	}
	if len(own) > 0 {
		g.put(func(in *inbox) { in.durable = append(in.durable, own...) })
		g.attend()
	}
}

// noteEntries notes the stamps, the rendezvous and the changes of the configuration among
// the entries that this leader appends.
func (g *group) noteEntries(entries []*raftpb.Entry) {
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal || len(g.r.groups) == 1 || len(e.GetData()) == 0 {
			g.change.note(e, false)
			continue
		}
		c, err := command.Decode(e.GetData())
		if err != nil {
			continue
		}
		g.change.note(e, c.Parts != 0)
		if n := c.Stamps(); n > 0 {
			g.stamps = append(g.stamps, stampAt{e.GetIndex(), c.Stamp + int64(n) - 1})
		}
	}
}

// undecodable ends the server at an entry that it can't decode. The log is protected by
// checksums, so this is an entry of a later release, or a bug. To go on would make the replicas
// diverge (I6). It does not return.
func (g *group) undecodable(e *raftpb.Entry, err error) {
	g.r.cfg.Machine.Fatal(fmt.Errorf("group %d: entry %d can't be executed: %w", g.id, e.GetIndex(), err))
	runtime.Goexit()
}

// decodeStep reads a change of the configuration.
func (g *group) decodeStep(e *raftpb.Entry) *membership.Step {
	s, err := raftlog.StepIn(e)
	if err != nil {
		g.undecodable(e, err)
	}
	return &s
}

// deliver queues committed entries for apply.
func (g *group) deliver(m *raftpb.Message) {
	for _, e := range m.GetEntries() {
		it := item{index: e.GetIndex(), term: e.GetTerm()}
		if e.GetType() != raftpb.EntryNormal {
			it.step = g.decodeStep(e)
		} else if len(e.GetData()) > 0 {
			c, err := command.Decode(e.GetData())
			if err != nil {
				g.undecodable(e, err)
			}
			it.entry = c
			if len(g.traced) > 0 {
				g.tracedCommitted(&it.entry)
			}
		}
		g.mu.Lock()
		if it.step != nil {
			g.stepping++
		}
		g.committed = append(g.committed, it)
		g.mu.Unlock()
		if b := g.barrier.Load(); b != 0 && it.entry.Seq == b && it.entry.Origin == g.r.cfg.Origin {
			g.effects.add(g.r.lead.barrierCommitted(g, b, g.unfinished())...)
		}
	}
	g.acks = append(g.acks, m.GetResponses()...)
}
