//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/wal"
)

func entry(index, term uint64, typ raftpb.EntryType, data string) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Type: &typ, Data: []byte(data)}
}

// walFiles is a log of two groups in several segments, with each kind of record.
func walFiles(t *testing.T, level int) files {
	at := t.TempDir()
	logs := walLogs()
	w := openWAL(t, at, logs, nil)
	step := func(recs []wal.Record) {
		require.NoError(t, w.Append(recs))
		require.NoError(t, w.Sync())
	}
	hard := func(term, vote, commit uint64) *raftpb.HardState {
		return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	}
	step(logs[0].Append(hard(2, 1, 1), nil))
	for i := range uint64(6) {
		var recs []wal.Record
		for g, l := range logs {
			recs = l.AppendTo(recs, hard(2, 1, 1+i), []*raftpb.Entry{entry(2+i, 2, raftpb.EntryNormal, strings.Repeat(fmt.Sprint(g), 1000))})
		}
		step(recs)
	}
	step(logs[1].Append(hard(3, 2, 6), []*raftpb.Entry{entry(7, 3, raftpb.EntryConfChange, "change"), entry(8, 3, raftpb.EntryNormal, "")}))
	// The server starts again, with a snapshot that it has received.
	require.NoError(t, w.Close())
	logs = walLogs()
	w = openWAL(t, at, logs, nil)
	for g, applied := range []raftlog.Position{{Index: 20, Term: 3}, {Index: 7, Term: 3}} {
		changed, err := logs[g].Recover(applied)
		require.NoError(t, err)
		require.Equal(t, g == 0, changed)
	}
	step([]wal.Record{logs[0].ResetRecord()})
	step(logs[0].Append(hard(3, 0, 20), []*raftpb.Entry{entry(21, 3, raftpb.EntryConfChangeV2, "change")}))
	require.NoError(t, w.Close())

	f := files{"wal.txt": []byte(describeWAL(t, at))}
	names, err := filepath.Glob(filepath.Join(at, "*.wal"))
	require.NoError(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		f["wal/"+filepath.Base(name)+".gz"] = zip(t, b)
	}
	return f
}

func walLogs() (logs []*raftlog.Log) {
	for g := range uint32(2) {
		logs = append(logs, raftlog.New(g, &raftpb.ConfState{Voters: []uint64{1, 2}}))
	}
	return logs
}

func openWAL(t *testing.T, at string, logs []*raftlog.Log, replay func(wal.Record) error) *wal.WAL {
	if replay == nil {
		replay = func(r wal.Record) error { return logs[r.Group].Replay(r) }
	}
	w, err := wal.Open(wal.Options{Dir: at, SegmentBytes: 8 << 10, Metadata: []byte("stoa1 golden"), Head: func() (recs []wal.Record) {
		for _, l := range logs {
			recs = append(recs, l.HardStateRecord())
		}
		return recs
	}}, replay)
	require.NoError(t, err)
	return w
}

func describeWAL(t *testing.T, at string) string {
	var out strings.Builder
	err := wal.Inspect(vfs.OS(), at, wal.Inspection{
		Segment: func(s wal.SegmentInfo) error {
			fmt.Fprintf(&out, "segment %s: %d bytes, metadata %q\n", filepath.Base(s.File), s.Size, s.Metadata)
			return nil
		},
		Frame: func(f wal.FrameInfo, recs []wal.Record) error {
			fmt.Fprintf(&out, "  %d: %s, %d bytes, synced to %d\n", f.Offset, f.Kind, f.Size, f.Durable)
			for _, r := range recs {
				fmt.Fprintf(&out, "    group %d %s %.20q\n", r.Group, raftlog.Describe(r), r.Data)
			}
			return nil
		},
		Torn: func(string, int64, int64, string) error { return nil },
	})
	require.NoError(t, err)
	return out.String()
}

// goldenWAL puts the log of a level into a directory.
func goldenWAL(t *testing.T, level int) (at string) {
	at = t.TempDir()
	from := filepath.Join(root, dir(level), "wal")
	list, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, f := range list {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(at, strings.TrimSuffix(f.Name(), ".gz")), unzip(t, b), 0o600))
	}
	return at
}

func TestWAL(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		at := goldenWAL(t, level)
		require.Equal(t, string(read("wal.txt")), describeWAL(t, at))
		for name, b := range walFiles(t, level) {
			if strings.HasPrefix(name, "wal/") {
				require.Equal(t, unzip(t, read(name)), unzip(t, b), "%s, byte for byte", name)
			}
		}
		logs := walLogs()
		w := openWAL(t, at, logs, nil)
		defer w.Close()
		require.Greater(t, w.Segments(), 1)
		first, err := logs[0].FirstIndex()
		require.NoError(t, err)
		last, err := logs[1].LastIndex()
		require.NoError(t, err)
		require.Equal(t, []uint64{21, 8}, []uint64{first, last})
		e, err := logs[1].Entry(7)
		require.NoError(t, err)
		require.Equal(t, raftpb.EntryConfChange, e.GetType())
		hs, _, err := logs[0].InitialState()
		require.NoError(t, err)
		require.EqualValues(t, 3, hs.GetTerm())
	})
}

func TestADamagedWAL(t *testing.T) {
	each(t, func(t *testing.T, level int, _ func(string) []byte) {
		names, err := filepath.Glob(filepath.Join(goldenWAL(t, level), "*.wal"))
		require.NoError(t, err)
		slices.Sort(names)
		first := filepath.Base(names[0])
		for what, damage := range map[string]func(b []byte) []byte{
			"cut":          func(b []byte) []byte { return b[:len(b)/2] },
			"cut head":     func(b []byte) []byte { return b[:10] },
			"flipped bit":  func(b []byte) []byte { b[200] ^= 4; return b },
			"flipped head": func(b []byte) []byte { b[20] ^= 4; return b },
			"other format": func(b []byte) []byte { b[7]++; return b },
		} {
			at := goldenWAL(t, level)
			b, err := fs.ReadFile(os.DirFS(at), first)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(at, first), damage(b), 0o600))
			_, err = wal.Open(wal.Options{Dir: at, Metadata: []byte("stoa1 golden")}, func(wal.Record) error { return nil })
			require.ErrorContains(t, err, first, what)
		}
	})
}
