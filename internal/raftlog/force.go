package raftlog

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/wal"
)

// Tail returns the entries behind the applied position, which must not be changed.
func (l *Log) Tail() []*pb.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.applied.Index - l.base.Index
	return l.ents[n:len(l.ents):len(l.ents)]
}

// Force puts entries in the place of those from the first one's index on, and commits all of
// them by this server's word alone, in a term in which it has voted for itself. It returns the
// records that have to be durable before Raft is started.
func (l *Log) Force(id uint64, ents []*pb.Entry) []wal.Record {
	last := ents[len(ents)-1]
	recs := l.Append(&pb.HardState{Term: last.Term, Vote: &id, Commit: last.Index}, ents)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = last.GetIndex()
	return recs
}

// ForceCommit commits the log through an index, as Force does, and leaves it as it is.
func (l *Log) ForceCommit(index uint64) []wal.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hs.commit = max(l.hs.commit, index)
	l.settled = max(l.settled, index)
	return []wal.Record{hardStateRecord(l.group, l.hs)}
}

// LastTerm is the last term in which this server has taken part.
func (l *Log) LastTerm() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hs.term
}
