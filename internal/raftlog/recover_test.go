package raftlog

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/wal"
)

// replayed returns a log that has gone through the records.
func replayed(t *testing.T, recs []wal.Record) *Log {
	t.Helper()
	l := newLog()
	for _, r := range recs {
		require.NoError(t, l.Replay(r))
	}
	return l
}

func hardStateOf(t *testing.T, l *Log) *pb.HardState {
	t.Helper()
	hs, _, err := l.InitialState()
	require.NoError(t, err)
	return hs
}

func requireState(t *testing.T, want *pb.HardState, l *Log) {
	t.Helper()
	require.True(t, proto.Equal(want, hardStateOf(t, l)), hardStateOf(t, l))
}

func TestRecoverKeepsTheLogForFollowers(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 1), run(2, 5, 2))
	recs = append(recs, w.Append(state(3, 2, 4), run(5, 8, 3))...)
	want := append(shows(run(2, 4, 2)), shows(run(5, 8, 3))...)

	l := replayed(t, recs)
	changed, err := l.Recover(Position{4, 2})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, want, contents(t, l))
	requireState(t, state(3, 2, 4), l)

	l = replayed(t, recs)
	_, err = l.Recover(Position{7, 3})
	require.NoError(t, err)
	require.Equal(t, want, contents(t, l))
	requireState(t, state(3, 2, 7), l)
	index, _ := l.Shorten(Tail{Entries: 1, Common: 20})
	require.EqualValues(t, 6, index)
	require.Equal(t, shows(run(7, 8, 3)), contents(t, l))
}

func TestRecoverWithoutARecord(t *testing.T) {
	l := newLog()
	changed, err := l.Recover(Bootstrap)
	require.NoError(t, err)
	require.False(t, changed)
	requireState(t, state(1, 0, 1), l)

	// An idle group whose only remaining record is in a segment's head.
	l = replayed(t, []wal.Record{hardStateRecord(group, hardState{5, 2, 80})})
	changed, err = l.Recover(Position{80, 4})
	require.NoError(t, err)
	require.False(t, changed)
	requireState(t, state(5, 2, 80), l)
	first, _ := l.FirstIndex()
	require.EqualValues(t, 81, first)
	l.Append(nil, run(81, 82, 5))
}

func TestRecoverOfALogBehindTheSnapshot(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 3), run(2, 5, 2))
	l := replayed(t, recs)
	changed, err := l.Recover(Position{50, 7})
	require.NoError(t, err)
	require.True(t, changed)
	require.Empty(t, contents(t, l))
	requireState(t, state(7, 0, 50), l)
	recs = append(recs, l.ResetRecord())
	recs = append(recs, l.Append(nil, run(51, 53, 7))...)

	l = replayed(t, recs)
	changed, err = l.Recover(Position{51, 7})
	require.NoError(t, err)
	require.False(t, changed, "once is enough")
	require.Equal(t, shows(run(51, 53, 7)), contents(t, l))
	requireState(t, state(7, 0, 51), l)
}

func TestRecoverKeepsAVoteOfALaterTerm(t *testing.T) {
	w := newLog()
	recs := w.Append(state(9, 2, 3), run(2, 5, 2))
	l := replayed(t, recs)
	changed, err := l.Recover(Position{50, 7})
	require.NoError(t, err)
	require.True(t, changed)
	requireState(t, state(9, 2, 50), l)
}

func TestRecoverDropsEntriesThatASnapshotContradicts(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 3), run(2, 9, 2))
	l := replayed(t, recs)
	changed, err := l.Recover(Position{6, 4})
	require.NoError(t, err)
	require.True(t, changed)
	require.Empty(t, contents(t, l))
	requireState(t, state(4, 0, 6), l)
}

func TestRecoverAfterOldSegmentsWereReleased(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 3), run(2, 9, 2))
	tail := append([]wal.Record{w.HardStateRecord()}, recs[5:]...) // from entry 6
	l := replayed(t, tail)
	changed, err := l.Recover(Position{7, 2})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, shows(run(7, 9, 2)), contents(t, l))
	term, err := l.Term(6)
	require.NoError(t, err)
	require.EqualValues(t, 2, term, "the base has a term, at the price of an entry")

	l = replayed(t, tail)
	_, err = l.Recover(Position{5, 2})
	require.NoError(t, err, "the log begins right behind the state machine")
	term, err = l.Term(5)
	require.NoError(t, err)
	require.EqualValues(t, 2, term)

	l = replayed(t, tail)
	_, err = l.Recover(Position{4, 2})
	require.EqualError(t, err, "raft log of group 3: the state machine is at index 4, and the log begins after 5: entries in between are lost")
}

// Entries 3 to 9 of term 2 began in a released segment; the retained records
// begin with 6, and then overwrite everything from 4 on.
func TestReplayOverwritesBelowItsFirstEntry(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 2), run(2, 9, 2))[5:]
	recs = append(recs, w.Append(state(4, 1, 3), run(4, 7, 4))...)
	l := replayed(t, recs)
	_, err := l.Recover(Position{5, 4})
	require.NoError(t, err)
	require.Equal(t, shows(run(5, 7, 4)), contents(t, l))
}

func TestRecoverLowersACommitIndexAheadOfTheLog(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 1), run(2, 4, 2))
	l := replayed(t, append(recs, hardStateRecord(group, hardState{2, 1, 90})))
	_, err := l.Recover(Position{3, 2})
	require.NoError(t, err)
	requireState(t, state(2, 1, 4), l)
}

func TestRecoverRefuses(t *testing.T) {
	w := newLog()
	recs := w.Append(state(2, 1, 1), run(2, 4, 2))

	_, err := replayed(t, recs).Recover(Position{})
	require.ErrorContains(t, err, "claims to be at index 0 of term 0")

	_, err = replayed(t, recs[1:]).Recover(Bootstrap)
	require.EqualError(t, err, "raft log of group 3: the hard state's term 1 is behind the term 2 of entry 4")

	_, err = replayed(t, []wal.Record{resetRecord(group, Position{9, 3}, hardState{3, 0, 9})}).Recover(Position{9, 2})
	require.ErrorContains(t, err, "the log was reset to term 3 there")
}

func TestReplayRefuses(t *testing.T) {
	l := replayed(t, newLog().Append(state(2, 0, 1), run(2, 4, 2)))
	for _, c := range []struct {
		rec  wal.Record
		says string
	}{
		{wal.Record{Group: 9, Kind: kindEntry, Index: 5, Note: 2}, "record of group 9"},
		{wal.Record{Group: group, Kind: kindEntry, Index: 6, Note: 2}, "entry 6 doesn't follow the log from 2 to 4"},
		{wal.Record{Group: group, Kind: kindEntry, Index: 1, Note: 2}, "entry 1 doesn't follow the log from 2 to 4"},
		{wal.Record{Group: group, Kind: kindEntry, Index: 5}, "entry with index 5 of term 0"},
		{wal.Record{Group: group, Kind: 15, Index: 5, Note: 2}, "unknown kind 15"},
		{wal.Record{Group: group, Kind: kindEntry + 3, Index: 5, Note: 2}, "unknown kind 19"},
		{wal.Record{Group: group, Kind: kindHardState, Data: []byte{1}}, "hard state: 2 numbers expected, number 2 is malformed"},
		{wal.Record{Group: group, Kind: kindHardState, Data: []byte{1, 2, 3}}, "1 bytes are left over"},
		{wal.Record{Group: group, Kind: kindReset, Index: 5, Note: 2}, "reset to index 5: 3 numbers expected"},
		{wal.Record{Group: group, Kind: kindReset, Index: 0, Note: 2, Data: []byte{1, 2, 3}}, "reset to index 0 of term 2"},
	} {
		err := l.Replay(c.rec)
		require.ErrorContains(t, err, "raft log of group 3: ")
		require.ErrorContains(t, err, c.says)
		require.Equal(t, shows(run(2, 4, 2)), contents(t, l), "a refused record changes nothing")
	}
}

func TestDescribe(t *testing.T) {
	l := newLog()
	recs := l.Append(state(2, 0xab, 1), []*pb.Entry{{Index: new(uint64(2)), Term: new(uint64(2)), Type: new(pb.EntryConfChangeV2), Data: []byte("abc")}})
	require.Equal(t, "hard state: term 2, vote ab, commit 1", Describe(recs[0]))
	require.Equal(t, "entry 2 of term 2: EntryConfChangeV2, 3 bytes", Describe(recs[1]))
	require.Equal(t, "reset to index 1 of term 1: term 2, vote ab, commit 1", Describe(l.ResetRecord()))
	require.Contains(t, Describe(wal.Record{Kind: kindReset}), "malformed")
	require.Contains(t, Describe(wal.Record{Kind: kindHardState}), "malformed")
	require.Contains(t, Describe(wal.Record{Kind: 9}), "unknown kind 9")
}

// A leader proposes a change of the configuration only after it has applied the one before.
// So a server that has two of them in its log knows the first to be committed, and must not
// campaign without it, though its log forgets commit indexes.
func TestRecoverKnowsThatAllButTheLastChangeAreCommitted(t *testing.T) {
	change := func(index uint64) *pb.Entry {
		e := entry(index, 2, "change")
		e.Type = new(pb.EntryConfChange)
		return e
	}
	for _, tt := range []struct {
		about   string
		changes []uint64
		commit  uint64
	}{
		{"none", nil, 3},
		{"one may be uncommitted", []uint64{7}, 3},
		{"of two the first is committed", []uint64{5, 7}, 5},
		{"of three the second is", []uint64{4, 6, 9}, 6},
		{"they are applied", []uint64{2, 3}, 3},
	} {
		w := newLog()
		recs := w.Append(state(2, 1, 1), run(2, 9, 2))
		for _, i := range tt.changes {
			recs = append(recs, w.Append(nil, append([]*pb.Entry{change(i)}, run(i+1, 9, 2)...))...)
		}
		l := replayed(t, recs)
		_, err := l.Recover(Position{3, 2})
		require.NoError(t, err)
		requireState(t, state(2, 1, tt.commit), l)
	}
}

// The log of a server that joins a cluster begins with nothing, so that its leader finds no
// entry in common and sends its state.
func TestTheLogOfAServerThatJoinsIsEmpty(t *testing.T) {
	l := New(group, &pb.ConfState{})
	_, err := l.Recover(Position{})
	require.NoError(t, err)
	require.Empty(t, contents(t, l))
	first, err := l.FirstIndex()
	require.NoError(t, err)
	require.EqualValues(t, 1, first)
	recs := l.Append(state(5, 3, 0), nil) // it may vote before it has anything

	again := New(group, &pb.ConfState{})
	for _, r := range recs {
		require.NoError(t, again.Replay(r))
	}
	_, err = again.Recover(Position{})
	require.NoError(t, err)
	requireState(t, state(5, 3, 0), again)

	installed := newLog() // with the configuration of the state that it was sent
	for _, r := range recs {
		require.NoError(t, installed.Replay(r))
	}
	_, err = installed.Recover(Position{40, 4})
	require.NoError(t, err)
	requireState(t, state(5, 3, 40), installed)
	last, err := installed.LastIndex()
	require.NoError(t, err)
	require.EqualValues(t, 40, last)
}

// What a server has forced must not be undone by the hard state that is repeated at the head of
// the next segment: without those entries its configuration has members that are gone.
func TestForcedEntriesStayCommitted(t *testing.T) {
	l := newLog()
	recs := l.Append(state(2, 2, 3), run(2, 6, 2))
	l = replayed(t, recs)
	_, err := l.Recover(Position{3, 2})
	require.NoError(t, err)
	require.Equal(t, shows(run(4, 6, 2)), shows(l.Tail()))
	require.EqualValues(t, 2, l.LastTerm())

	forced := append(recs, l.Force(1, run(6, 8, 3))...)
	want := append(shows(run(2, 5, 2)), shows(run(6, 8, 3))...)
	for _, recs := range [][]wal.Record{forced, append(forced, l.HardStateRecord())} {
		l := replayed(t, recs)
		_, err := l.Recover(Position{3, 2})
		require.NoError(t, err)
		require.Equal(t, want, contents(t, l))
		requireState(t, state(3, 1, 8), l)
		// The same of a segment that begins after a restart.
		again := replayed(t, append(recs, l.HardStateRecord()))
		_, err = again.Recover(Position{3, 2})
		require.NoError(t, err)
		requireState(t, state(3, 1, 8), again)
	}
}

// What was forced stays committed when the log goes on in another segment, whose head repeats the hard
// state: nobody would tell it to a server that is left alone.
func TestACommitThatWasForcedIsNotTakenBack(t *testing.T) {
	l := newLog()
	recs := l.Append(state(2, 1, 1), run(2, 5, 2))
	l.Append(state(2, 1, 4), nil)
	recs = append(recs, l.HardStateRecord())
	again := replayed(t, recs)
	_, err := again.Recover(Bootstrap)
	require.NoError(t, err)
	requireState(t, state(2, 1, 1), again)

	recs = append(append(recs, l.ForceCommit(3)...), l.HardStateRecord())
	again = replayed(t, recs)
	_, err = again.Recover(Bootstrap)
	require.NoError(t, err)
	requireState(t, state(2, 1, 3), again)
}
