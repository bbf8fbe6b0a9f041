package raftlog

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/wal"
)

// server is one group's log over the real write-ahead log, with the state
// machine's file reduced to its position. The model of the log is the entries
// behind index 1; below the position they don't matter.
type server struct {
	fs      *vfs.Mem
	w       *wal.WAL
	l       *Log
	applied Position // durable

	term   uint64
	commit uint64 // nothing up to here is rewritten
	// maybe are the logs that a crash may leave: that of the last sync and each
	// since. The last is the present one.
	maybe [][]*pb.Entry
}

func (s *server) now() []*pb.Entry { return s.maybe[len(s.maybe)-1] }
func (s *server) last() uint64     { return uint64(len(s.now())) + 1 }

// behind is what a log must show after recovery, behind the state machine's
// position.
func (s *server) behind(log []*pb.Entry) []string {
	i := int(s.applied.Index) - 1
	if i > len(log) || i > 0 && log[i-1].GetTerm() != s.applied.Term {
		return nil
	}
	return shows(log[i:])
}

func (s *server) open(t *rapid.T) {
	s.l = newLog()
	var err error
	s.w, err = wal.Open(wal.Options{
		FS: s.fs, Dir: "/wal", SegmentBytes: 600,
		Head: func() []wal.Record { return []wal.Record{s.l.HardStateRecord()} },
	}, s.l.Replay)
	require.NoError(t, err)
	changed, err := s.l.Recover(s.applied)
	require.NoError(t, err)
	if changed {
		require.NoError(t, s.w.Append([]wal.Record{s.l.ResetRecord()}))
		require.NoError(t, s.w.Sync())
	}
	s.check(t)
}

func (s *server) check(t *rapid.T) {
	last, err := s.l.LastIndex()
	require.NoError(t, err)
	require.GreaterOrEqual(t, last, s.applied.Index)
	ents, err := s.l.Entries(s.applied.Index+1, last+1, 1<<60)
	require.NoError(t, err)
	i := slices.IndexFunc(s.maybe, func(log []*pb.Entry) bool { return slices.Equal(s.behind(log), shows(ents)) })
	require.GreaterOrEqual(t, i, 0, "%v is none of the logs that may be left", shows(ents))

	hs, _, err := s.l.InitialState()
	require.NoError(t, err)
	require.GreaterOrEqual(t, hs.GetCommit(), s.applied.Index)
	require.LessOrEqual(t, hs.GetCommit(), last)

	// What was recovered is durable; below the position any entry will do.
	log := make([]*pb.Entry, s.applied.Index-1)
	for i := range log {
		log[i] = entry(uint64(i)+2, s.applied.Term, "")
	}
	s.maybe = [][]*pb.Entry{append(log, ents...)}
	s.commit = s.applied.Index
	s.term = max(s.term, hs.GetTerm()) + 1
}

func (s *server) step(t *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(t, "step") {
	case 0, 1:
		s.append(t)
	case 2:
		require.NoError(t, s.w.Sync())
		s.maybe = [][]*pb.Entry{s.now()}
	case 3: // commit, for which entries must be durable
		if len(s.maybe) == 1 {
			s.commit = rapid.Uint64Range(s.commit, s.last()).Draw(t, "commit")
			require.NoError(t, s.w.Append(s.l.Append(state(s.term, 1, s.commit), nil)))
		}
	case 4: // flush, compact, release
		if s.commit > s.applied.Index {
			s.applied = Position{s.commit, s.now()[s.commit-2].GetTerm()}
			s.l.SetApplied(s.applied)
			s.l.Shorten(Tail{
				Entries: rapid.Uint64Range(1, 10).Draw(t, "entries"),
				Bytes:   rapid.Int64Range(0, 1000).Draw(t, "bytes"),
				Needed:  rapid.Uint64Range(0, s.commit).Draw(t, "needed"),
				Held:    rapid.Int64Range(0, 2000).Draw(t, "held"),
				Common:  rapid.Uint64Range(0, s.commit).Draw(t, "common"),
			})
			require.NoError(t, s.w.Release(map[uint32]uint64{0: 0, 1: 0, 2: 0, 3: s.applied.Index + 1}))
		}
	case 5:
		s.term += rapid.Uint64Range(0, 1).Draw(t, "term")
	}
}

func (s *server) append(t *rapid.T) {
	from := rapid.Uint64Range(s.commit+1, s.last()+1).Draw(t, "from")
	var ents []*pb.Entry
	for i := range rapid.Uint64Range(1, 4).Draw(t, "entries") {
		data := strings.Repeat("x", rapid.IntRange(0, 200).Draw(t, "size"))
		ents = append(ents, entry(from+i, s.term, data))
	}
	s.maybe = append(s.maybe, append(slices.Clip(s.now()[:from-2]), ents...))
	require.NoError(t, s.w.Append(s.l.Append(state(s.term, 1, s.commit), ents)))
}

// install moves the state machine's file ahead by a received snapshot: beyond
// the log, or to where the log has an entry of another, uncommitted history.
func (s *server) install(t *rapid.T) {
	s.term++
	s.applied = Position{s.commit + rapid.Uint64Range(1, 9).Draw(t, "ahead"), s.term}
}

// Every durable entry behind the state machine comes back through the real
// log, over crashes, rewritten tails, released segments and snapshots.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &server{fs: vfs.NewMem(), applied: Bootstrap, term: 1, maybe: [][]*pb.Entry{nil}}
		s.open(t)
		for range rapid.IntRange(1, 5).Draw(t, "lives") {
			for range rapid.IntRange(0, 25).Draw(t, "steps") {
				s.step(t)
			}
			if rapid.IntRange(0, 3).Draw(t, "install") == 0 {
				s.install(t)
			}
			s.fs = s.fs.Crash(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "crash"), 2)))
			s.open(t)
		}
	})
}

// FuzzReplay feeds any records; a log that takes them must be one that Raft can
// read.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{kindEntry, 2, 1, 0, kindEntry, 3, 1, 0, kindHardState, 0, 1, 2, 0, 3})
	f.Add([]byte{kindReset, 9, 4, 3, 4, 1, 9, kindEntry + 2, 10, 4, 1, 77})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newLog()
		for len(b) >= 4 {
			n := min(int(b[3]), len(b)-4)
			r := wal.Record{Group: group, Kind: b[0], Index: uint64(b[1]), Note: uint64(b[2]), Data: b[4 : 4+n]}
			b = b[4+n:]
			if l.Replay(r) != nil {
				continue
			}
			contents(t, l)
		}
		if _, err := l.Recover(Position{5, 2}); err != nil {
			return
		}
		contents(t, l)
		last, _ := l.LastIndex()
		hs, _, _ := l.InitialState()
		require.GreaterOrEqual(t, last, uint64(5))
		require.GreaterOrEqual(t, hs.GetCommit(), uint64(5))
		require.LessOrEqual(t, hs.GetCommit(), last)
		term, err := l.Term(last)
		require.NoError(t, err)
		require.GreaterOrEqual(t, hs.GetTerm(), term)
	})
}
