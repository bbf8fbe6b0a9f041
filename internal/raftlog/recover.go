package raftlog

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/wal"
)

// Replay takes the next record that wal.Open hands out. It copies the data.
func (l *Log) Replay(rec wal.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.replay(rec); err != nil {
		return fmt.Errorf("raft log of group %d: %w", l.group, err)
	}
	return nil
}

func (l *Log) replay(rec wal.Record) error {
	switch {
	case rec.Group != l.group:
		return fmt.Errorf("record of group %d", rec.Group)
	case rec.Kind == kindHardState:
		hs, err := decodeHardState(rec)
		if err != nil {
			return fmt.Errorf("hard state: %w", err)
		}
		l.hs = hs
	case rec.Kind == kindReset:
		at, hs, err := decodeReset(rec)
		if err != nil {
			return fmt.Errorf("reset to index %d: %w", rec.Index, err)
		}
		if at.Index == 0 || at.Term == 0 {
			return fmt.Errorf("reset to index %d of term %d", at.Index, at.Term)
		}
		l.reset(at)
		l.hs, l.began = hs, true
	case isEntry(rec):
		return l.replayEntry(rec)
	default:
		return fmt.Errorf("record of unknown kind %d", rec.Kind)
	}
	return nil
}

func (l *Log) replayEntry(rec wal.Record) error {
	if rec.Index == 0 || rec.Note == 0 {
		return fmt.Errorf("entry with index %d of term %d", rec.Index, rec.Note)
	}
	// The records before the first entry have been released, and the term of
	// the base is not known before Recover. Of entries that were overwritten
	// before they were committed, the released part may have begun earlier:
	// then the overwriting entries start at or below the base.
	if !l.began || l.base.Term == 0 && rec.Index <= l.base.Index {
		l.reset(Position{Index: rec.Index - 1})
		if l.base.Index == Bootstrap.Index {
			l.base = Bootstrap
		}
	}
	l.began = true
	if rec.Index <= l.base.Index || rec.Index > l.last()+1 {
		return fmt.Errorf("entry %d doesn't follow the log from %d to %d", rec.Index, l.base.Index+1, l.last())
	}
	l.truncate(rec.Index)
	l.push(decodeEntry(rec))
	return nil
}

func (l *Log) reset(at Position) {
	l.base, l.ents, l.bytes = at, nil, 0
}

// Recover is called once after the replay, with the position of the state
// machine as its file has it. Entries up to there stay, for followers that
// are behind, until Shorten; Raft must be told to apply only what follows. A
// log that ends before the position, or has another entry there, is behind a
// received snapshot: it is reset, and changed tells the caller to log
// ResetRecord before anything else. A log that begins after it has a gap,
// which is an error.
func (l *Log) Recover(applied Position) (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed, err = l.align(applied)
	if err == nil {
		err = l.alignHardState()
	}
	if err != nil {
		return false, fmt.Errorf("raft log of group %d: %w", l.group, err)
	}
	return changed, nil
}

func (l *Log) align(applied Position) (changed bool, err error) {
	if joining := len(l.conf.GetVoters()) == 0; !(joining && applied == Position{}) &&
		(applied.Index < Bootstrap.Index || applied.Term < Bootstrap.Term) {
		return false, fmt.Errorf("the state machine claims to be at index %d of term %d", applied.Index, applied.Term)
	}
	l.applied = applied
	switch {
	case !l.began:
		l.reset(applied)
		return false, nil
	case applied.Index < l.base.Index:
		return false, fmt.Errorf("the state machine is at index %d, and the log begins after %d: entries in between are lost", applied.Index, l.base.Index)
	case applied.Index > l.last():
		l.reset(applied)
		return true, nil
	case applied.Index == l.base.Index:
		if l.base.Term != 0 && l.base.Term != applied.Term {
			return false, fmt.Errorf("the state machine is at index %d of term %d, and the log was reset to term %d there", applied.Index, applied.Term, l.base.Term)
		}
		l.base = applied
		return false, nil
	}
	if term := l.ents[applied.Index-l.base.Index-1].GetTerm(); term != applied.Term {
		l.reset(applied)
		return true, nil
	}
	if l.base.Term == 0 {
		// A base must have a term; the first entry has one.
		l.compactTo(l.base.Index + 1)
	}
	return false, nil
}

// alignHardState brings the hard state into the bounds that Raft expects. It
// may be behind, because a snapshot doesn't pass through the log; a server that
// had voted in the snapshot's term would have a record of that, so no vote is
// forgotten.
func (l *Log) alignHardState() error {
	last := l.applied.Term
	if n := len(l.ents); n > 0 {
		last = l.ents[n-1].GetTerm()
		if l.hs.term < last {
			return fmt.Errorf("the hard state's term %d is behind the term %d of entry %d", l.hs.term, last, l.last())
		}
	}
	if l.hs.term < last {
		l.hs.term, l.hs.vote = last, 0
	}
	l.hs.commit = min(max(l.hs.commit, l.applied.Index, l.changed()), l.last())
	l.settled = l.hs.commit
	return nil
}

// Commit notes, behind Recover, that this server has executed the log through an index before, as far as that reaches: it is committed there.
// A commit index alone makes no record.
func (l *Log) Commit(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hs.commit = max(l.hs.commit, min(index, l.last()))
	l.settled = l.hs.commit
}

// Resume is Recover for a log that was in use until now, all of whose entries are durable: another
// raft.RawNode is to go on with it, in a configuration, from the position of the state machine.
func (l *Log) Resume(applied Position, conf *pb.ConfState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if applied.Index < l.base.Index || applied.Index > l.last() {
		return fmt.Errorf("raft log of group %d: the state machine is at index %d, and the log has %d to %d", l.group, applied.Index, l.base.Index, l.last())
	}
	l.applied, l.conf = applied, proto.CloneOf(conf)
	if err := l.alignHardState(); err != nil {
		return fmt.Errorf("raft log of group %d: %w", l.group, err)
	}
	return nil
}

// changed is the index of the last but one change of the configuration, or 0: with a seal behind it, the
// last one that has changed anything (package membership). A leader
// proposes a change only after it has applied the one before, so that one is committed,
// also if the commit index that said so is lost. Raft relies on it: a server must not
// campaign in a configuration that is two changes old, whose quorums may have no member in
// common with those of the present one.
func (l *Log) changed() (index uint64) {
	last := uint64(0)
	for _, e := range l.ents {
		if isStep(e) {
			index, last = last, e.GetIndex()
		}
	}
	return index
}

func isStep(e *pb.Entry) bool {
	t := e.GetType()
	return t == pb.EntryConfChange || t == pb.EntryConfChangeV2
}

// LastStep is the index of the last change of the configuration in the log, or 0.
func (l *Log) LastStep() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.ents) - 1; i >= 0; i-- {
		if isStep(l.ents[i]) {
			return l.ents[i].GetIndex()
		}
	}
	return 0
}
