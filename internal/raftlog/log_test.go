package raftlog

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/wal"
)

const group = 3

func newLog() *Log { return New(group, &pb.ConfState{Voters: []uint64{1, 2, 3}}) }

func entry(index, term uint64, data string) *pb.Entry {
	return &pb.Entry{Index: new(index), Term: new(term), Type: new(pb.EntryNormal), Data: []byte(data)}
}

// run returns the entries from..to of one term.
func run(from, to, term uint64) (ents []*pb.Entry) {
	for i := from; i <= to; i++ {
		ents = append(ents, entry(i, term, fmt.Sprintf("%d of term %d", i, term)))
	}
	return ents
}

func state(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

// contents is the log as a reader sees it.
func contents(t require.TestingT, l *Log) (s []string) {
	first, err := l.FirstIndex()
	require.NoError(t, err)
	last, err := l.LastIndex()
	require.NoError(t, err)
	ents, err := l.Entries(first, last+1, 1<<60)
	require.NoError(t, err)
	for i, e := range ents {
		require.Equal(t, first+uint64(i), e.GetIndex())
		s = append(s, show(e))
	}
	return s
}

func show(e *pb.Entry) string {
	return fmt.Sprintf("%d/%d %s %q", e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData())
}

func shows(ents []*pb.Entry) (s []string) {
	for _, e := range ents {
		s = append(s, show(e))
	}
	return s
}

func TestANewLogStartsFromTheBootstrapPosition(t *testing.T) {
	l := newLog()
	hs, conf, err := l.InitialState()
	require.NoError(t, err)
	require.True(t, proto.Equal(state(1, 0, 1), hs), hs)
	require.Equal(t, []uint64{1, 2, 3}, conf.Voters)
	snap, err := l.Snapshot()
	require.NoError(t, err)
	require.Equal(t, uint64(1), snap.GetMetadata().GetIndex())
	require.Equal(t, uint64(1), snap.GetMetadata().GetTerm())
	require.False(t, raft.IsEmptySnap(snap))
	term, err := l.Term(1)
	require.NoError(t, err)
	require.Equal(t, uint64(1), term)
	require.Empty(t, contents(t, l))
}

func TestReturnedEntriesAreImmutable(t *testing.T) {
	l := newLog()
	l.Append(nil, run(2, 6, 1))
	l.SetApplied(Position{3, 1})
	before, err := l.Entries(2, 7, 1<<60)
	require.NoError(t, err)
	want := shows(before)
	l.Append(nil, run(4, 8, 2))
	index, _ := l.Shorten(Tail{Entries: 1, Common: 20})
	require.EqualValues(t, 2, index, "what isn't applied stays")
	require.Equal(t, want, shows(before))
	some, err := l.Entries(4, 6, 1<<60)
	require.NoError(t, err)
	_ = append(some, entry(99, 9, "the caller's own"))
	require.Equal(t, shows(append(run(3, 3, 1), run(4, 8, 2)...)), contents(t, l))
	e, err := l.Entry(4)
	require.NoError(t, err)
	require.Equal(t, "4/2 EntryNormal \"4 of term 2\"", show(e))
}

func TestOnlyDurableStateIsLogged(t *testing.T) {
	l := newLog()
	kinds := func(recs []wal.Record) (k []uint8) {
		for _, r := range recs {
			k = append(k, r.Kind)
		}
		return k
	}
	require.Equal(t, []uint8{kindHardState, kindEntry, kindEntry}, kinds(l.Append(nil, run(2, 3, 1))), "entries bring it along")
	require.Empty(t, l.Append(state(1, 0, 3), nil), "the commit index alone")
	require.Empty(t, l.Append(&pb.HardState{}, nil))
	require.Equal(t, []uint8{kindHardState}, kinds(l.Append(state(2, 0, 3), nil)), "a term")
	require.Equal(t, []uint8{kindHardState}, kinds(l.Append(state(2, 1, 3), nil)), "a vote")
	require.Equal(t, hardStateRecord(group, hardState{2, 1, 3}), l.Append(nil, run(4, 4, 2))[0])
}

func TestBytesFollowsTheEntries(t *testing.T) {
	l := newLog()
	require.Zero(t, l.Bytes())
	l.Append(nil, []*pb.Entry{entry(2, 1, "12345"), entry(3, 1, "123")})
	require.EqualValues(t, 8+2*entryOverhead, l.Bytes())
	l.Append(nil, []*pb.Entry{entry(3, 2, "1")})
	require.EqualValues(t, 6+2*entryOverhead, l.Bytes())
	l.SetApplied(Position{3, 2})
	l.Shorten(Tail{Entries: 1, Common: 3})
	require.EqualValues(t, 1+entryOverhead, l.Bytes())
}

func TestShortenKeepsATail(t *testing.T) {
	const each = int64(8 + entryOverhead)
	for _, tt := range []struct {
		about string
		tail  Tail
		first uint64
		held  bool
	}{
		{"there is room", Tail{Entries: 11, Bytes: 20 * each, Common: 12}, 2, false},
		{"the oldest go, for their number", Tail{Entries: 3, Bytes: 20 * each, Common: 12}, 10, false},
		{"the oldest go, for their size", Tail{Entries: 10, Bytes: 8*each + 1, Common: 12}, 8, false},
		{"the last that is applied stays, and all behind it", Tail{Entries: 1, Common: 12}, 12, false},
		{"a follower needs more", Tail{Entries: 1, Needed: 5, Held: 20 * each, Common: 12}, 5, false},
		{"a follower needs more than Held", Tail{Entries: 1, Needed: 5, Held: 8 * each, Common: 12}, 8, false},
		{"a follower needs less", Tail{Entries: 3, Bytes: 20 * each, Needed: 11, Held: 20 * each, Common: 12}, 10, false},
		{"a follower needs unapplied entries", Tail{Entries: 1, Needed: 14, Held: 20 * each, Common: 12}, 12, false},
		{"a follower needs compacted entries", Tail{Entries: 1, Needed: 1, Held: 20 * each, Common: 12}, 2, false},
		{"what is behind the last common entry stays", Tail{Entries: 1, Common: 7}, 8, true},
		{"what is behind the last common entry stays, whoever needs what", Tail{Entries: 1, Common: 7, Needed: 10, Held: 20 * each}, 8, true},
		{"a common entry that isn't the reason", Tail{Entries: 6, Bytes: 20 * each, Common: 6}, 7, false},
		{"those that are far back go, though there is room", Tail{Entries: 11, Bytes: 20 * each, Far: 5, Common: 12}, 6, false},
		{"the last that is applied stays, however far back", Tail{Entries: 11, Bytes: 20 * each, Far: 15, Common: 12}, 12, false},
		{"a follower needs what is far back", Tail{Entries: 11, Bytes: 20 * each, Far: 9, Needed: 5, Held: 20 * each, Common: 12}, 5, false},
		{"what is behind the last common entry stays, however far back", Tail{Entries: 11, Bytes: 20 * each, Far: 9, Common: 7}, 8, true},
		{"no common entry is known", Tail{Entries: 1}, 2, true},
		{"no common entry is known, and there is room", Tail{Entries: 11, Bytes: 20 * each}, 2, false},
	} {
		l := newLog()
		for i := uint64(2); i <= 15; i++ {
			l.Append(nil, []*pb.Entry{entry(i, 1, "12345678")})
		}
		l.SetApplied(Position{12, 1})
		index, held := l.Shorten(tt.tail)
		require.EqualValues(t, tt.first-1, index, tt.about)
		require.Equal(t, tt.held, held, tt.about)
		first, err := l.FirstIndex()
		require.NoError(t, err)
		require.EqualValues(t, tt.first, first, tt.about)
		require.EqualValues(t, int64(16-tt.first)*each, l.Bytes(), tt.about)
	}
}

func TestShortenBehindASnapshot(t *testing.T) {
	l := newLog()
	l.Append(nil, run(2, 6, 1))
	l.SetApplied(Position{20, 2}) // the log is behind it
	index, _ := l.Shorten(Tail{Entries: 1, Common: 20})
	require.EqualValues(t, 6, index)
	require.Zero(t, l.Bytes())
}

func TestAGapInAnAppendIsABug(t *testing.T) {
	l := newLog()
	require.PanicsWithValue(t, "raft log of group 3: entry 4 doesn't follow the log from 2 to 1", func() { l.Append(nil, run(4, 4, 1)) })
	require.Panics(t, func() { l.Append(nil, run(1, 3, 1)) })
	require.Panics(t, func() { l.Append(nil, append(run(2, 3, 1), run(5, 5, 1)...)) })
}

func TestSnapshotIsTheAppliedPosition(t *testing.T) {
	l := newLog()
	l.Append(nil, run(2, 6, 4))
	l.SetApplied(Position{5, 4})
	l.SetConfState(&pb.ConfState{Voters: []uint64{7}})
	snap, err := l.Snapshot()
	require.NoError(t, err)
	require.True(t, proto.Equal(&pb.SnapshotMetadata{
		Index: new(uint64(5)), Term: new(uint64(4)), ConfState: &pb.ConfState{Voters: []uint64{7}},
	}, snap.Metadata))
	require.Empty(t, snap.Data)
}

// Raft's own storage is the model of how a storage behaves.
func TestStorageBehavesAsRaftsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, m := newLog(), raft.NewMemoryStorage()
		require.NoError(t, m.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1))}}))
		term := uint64(1)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			first, _ := m.FirstIndex()
			last, _ := m.LastIndex()
			if rapid.IntRange(0, 3).Draw(t, "compact") == 0 && last >= first {
				to := rapid.Uint64Range(first, last).Draw(t, "to")
				require.NoError(t, m.Compact(to))
				l.SetApplied(Position{to, 0})
				l.compactTo(to)
			} else {
				term += rapid.Uint64Range(0, 1).Draw(t, "term")
				from := rapid.Uint64Range(first, last+1).Draw(t, "from")
				ents := run(from, from+rapid.Uint64Range(0, 4).Draw(t, "more"), term)
				require.NoError(t, m.Append(ents))
				l.Append(nil, ents)
			}
			compare(t, l, m)
		}
	})
}

func compare(t *rapid.T, l *Log, m *raft.MemoryStorage) {
	first, _ := m.FirstIndex()
	last, _ := m.LastIndex()
	mine, _ := l.FirstIndex()
	require.Equal(t, first, mine)
	mine, _ = l.LastIndex()
	require.Equal(t, last, mine)
	for i := first - 1; i <= last+1; i++ {
		want, wantErr := m.Term(i)
		got, err := l.Term(i)
		require.Equal(t, wantErr, err, "term of %d", i)
		require.Equal(t, want, got, "term of %d", i)
	}
	if last < first {
		return
	}
	lo := rapid.Uint64Range(first-1, last).Draw(t, "lo")
	hi := rapid.Uint64Range(lo+1, last+1).Draw(t, "hi")
	want, wantErr := m.Entries(lo, hi, 1<<60)
	got, err := l.Entries(lo, hi, 1<<60)
	require.Equal(t, wantErr, err)
	require.Equal(t, shows(want), shows(got))
	if err == nil {
		one, err := l.Entries(lo, hi, 0)
		require.NoError(t, err)
		require.Len(t, one, 1, "at least one, however small the limit")
	}
}

// A single voter elects itself and commits, starting from a new log, and again
// from what was replayed.
func TestRaftRunsOnIt(t *testing.T) {
	conf := &pb.ConfState{Voters: []uint64{1}}
	l := New(group, conf)
	var recs []wal.Record
	for life := range 3 {
		node, err := raft.NewRawNode(&raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: l, Applied: l.applied.Index,
			MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16,
		})
		require.NoError(t, err)
		require.NoError(t, node.Campaign())
		applied := l.applied
		for proposed := false; node.HasReady(); {
			rd := node.Ready()
			recs = l.AppendTo(recs, rd.HardState, rd.Entries)
			for _, e := range rd.CommittedEntries {
				applied = Position{e.GetIndex(), e.GetTerm()}
			}
			node.Advance(rd)
			if !proposed && node.BasicStatus().RaftState == raft.StateLeader {
				require.NoError(t, node.Propose([]byte("x")))
				proposed = true
			}
		}
		require.EqualValues(t, 3+2*life, applied.Index, "the leader's empty entry and a proposal")

		l = New(group, conf)
		for _, r := range recs {
			require.NoError(t, l.Replay(r))
		}
		changed, err := l.Recover(applied)
		require.NoError(t, err)
		require.False(t, changed)
	}
}
