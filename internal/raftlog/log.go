package raftlog

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/wal"
)

// Position is a place in a Raft log.
type Position struct{ Index, Term uint64 }

// Bootstrap is the position that all servers of a new cluster start from, as
// if from a snapshot; index 0 would make Raft think that there is none.
var Bootstrap = Position{Index: 1, Term: 1}

// entryOverhead is about what an entry costs in memory beside its data.
const entryOverhead = 128

var _ raft.Storage = (*Log)(nil)

// Log is safe for concurrent use; only the group's loop may append, recover
// and set what is applied.
type Log struct {
	group uint32

	mu      sync.Mutex
	hs      hardState
	conf    *pb.ConfState
	base    Position // of the entry before ents[0]
	ents    []*pb.Entry
	bytes   int64
	applied Position
	// settled is an index up to which the durable entries are known to be committed, by what was
	// durable before.
	settled uint64
	// began: Replay has seen an entry or a reset. Until then nothing in the
	// write-ahead log contradicts any base.
	began bool
}

// New returns the empty log of a new group with the configuration conf.
func New(group uint32, conf *pb.ConfState) *Log {
	if len(conf.GetVoters()) == 0 {
		return &Log{group: group, conf: proto.CloneOf(conf)}
	}
	return &Log{
		group:   group,
		hs:      hardState{term: Bootstrap.Term, commit: Bootstrap.Index},
		conf:    proto.CloneOf(conf),
		base:    Bootstrap,
		applied: Bootstrap,
	}
}

// Append appends entries, truncating a conflicting suffix as Raft demands,
// records the hard state unless it is nil or empty, and returns the records
// that must be durable before Raft is told so. It retains the entries.
//
// An advance of the commit index alone produces no record: a restarted server
// learns it again, from the state machine's file or from a leader. Entries
// always bring the hard state along, so that no record of it, lost or left
// out, can leave the log with entries of a later term than its own.
func (l *Log) Append(hs *pb.HardState, ents []*pb.Entry) []wal.Record {
	return l.AppendTo(nil, hs, ents)
}

// AppendTo is Append with the records appended to recs. Their data aliases
// that of the entries.
func (l *Log) AppendTo(recs []wal.Record, hs *pb.HardState, ents []*pb.Entry) []wal.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.hs
	if hs != nil && !raft.IsEmptyHardState(hs) {
		l.hs = hardState{term: hs.GetTerm(), vote: hs.GetVote(), commit: hs.GetCommit()}
	}
	if len(ents) > 0 || l.hs.term != before.term || l.hs.vote != before.vote {
		recs = append(recs, hardStateRecord(l.group, l.hs))
	}
	if len(ents) == 0 {
		return recs
	}
	first := ents[0].GetIndex()
	if first <= l.base.Index || first > l.last()+1 {
		// Raft has broken its contract; continuing would write a log that
		// can't be replayed.
		panic(fmt.Sprintf("raft log of group %d: entry %d doesn't follow the log from %d to %d", l.group, first, l.base.Index+1, l.last()))
	}
	l.truncate(first)
	for i, e := range ents {
		if e.GetIndex() != first+uint64(i) {
			panic(fmt.Sprintf("raft log of group %d: entry %d in the place of %d", l.group, e.GetIndex(), first+uint64(i)))
		}
		l.push(e)
		recs = append(recs, entryRecord(l.group, e))
	}
	return recs
}

// truncate removes the entries from index on. The full slice expression makes
// the next push copy, since readers may still hold the old array.
func (l *Log) truncate(index uint64) {
	keep := index - l.base.Index - 1
	if keep == uint64(len(l.ents)) {
		return
	}
	for _, e := range l.ents[keep:] {
		l.bytes -= cost(e)
	}
	l.ents = l.ents[:keep:keep]
}

func (l *Log) push(e *pb.Entry) {
	l.ents = append(l.ents, e)
	l.bytes += cost(e)
}

func cost(e *pb.Entry) int64 { return int64(len(e.Data)) + entryOverhead }

// SetApplied records the applied position, which Snapshot returns.
func (l *Log) SetApplied(p Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied = p
}

// SetConfState records the configuration at the applied position.
func (l *Log) SetConfState(conf *pb.ConfState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conf = proto.CloneOf(conf)
}

// Bytes is the approximate memory used by the entries, in bytes.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// HardStateRecord is the current hard state, for wal.Options.Head. It may be
// logged before the entries that it belongs with, so its commit index is only
// that of the state machine's file, or of what the log itself has had for long: a higher
// one would, if the server crashes at that point, commit the entries that were to be
// overwritten.
func (l *Log) HardStateRecord() wal.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hs
	h.commit = min(h.commit, max(l.applied.Index, l.settled))
	return hardStateRecord(l.group, h)
}

// ResetRecord records that the log restarts at its base. It is logged after
// Recover has reported a change.
func (l *Log) ResetRecord() wal.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return resetRecord(l.group, l.base, l.hs)
}

func (l *Log) last() uint64 { return l.base.Index + uint64(len(l.ents)) }
