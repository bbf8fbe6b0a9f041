package replica

import "go.etcd.io/raft/v3/raftpb"

// Who asks for a vote says how far it knows its group to have committed: it may campaign in the configuration behind a
// step whose newest voter has the step, and the longest log, and hasn't heard of the commit. That one refuses its vote,
// and doesn't campaign. (TiKV's raft-rs, maybe_commit_by_vote, has all of the commit index heard; here the step is enough.)

// tellCommit adds to a request for a vote the index and the term of the last entry that this server knows to be committed,
// in fields that Raft doesn't use there.
func (g *group) tellCommit(m *raftpb.Message) {
	if !asksForVote(m) {
		return
	}
	index := g.commit.Load()
	if term, err := g.log.Term(index); err == nil {
		m.Commit, m.RejectHint = &index, &term
	}
}

// hearCommit gives Raft the last step of the log, if a request for a vote says that it is committed, behind those that
// this server knows to be.
func (g *group) hearCommit(m *raftpb.Message) {
	if !asksForVote(m) || g.leading {
		return
	}
	index := g.log.LastStep() // looks through the log
	if index > m.GetCommit() || index <= max(g.ahead, g.commit.Load()) {
		return
	}
	if term, err := g.log.Term(m.GetCommit()); err != nil || term != m.GetRejectHint() {
		return // its log is another one there, or longer
	}
	e, err := g.log.Entry(index)
	if err != nil {
		return
	}
	it := item{index: index, term: e.GetTerm(), step: g.decodeStep(e)}
	g.giveAhead(append(g.steps(), it), "Raft has a change of a group's configuration that another server knows to be committed")
}

func asksForVote(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgVote
}
