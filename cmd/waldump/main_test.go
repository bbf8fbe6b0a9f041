package main

import (
	"bytes"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/wal"
)

const dir = "/data/wal"

// written returns a log with an entry of two groups each, the last unsynced.
func written(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	w, err := wal.Open(wal.Options{FS: fs, Dir: dir, SegmentBytes: 512, Metadata: []byte("server 1")}, nil)
	require.NoError(t, err)
	for g := range uint32(2) {
		l := raftlog.New(g, &raftpb.ConfState{Voters: []uint64{0xab}})
		recs := l.Append(
			&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(0xab)), Commit: new(uint64(1))},
			[]*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(2)), Type: new(raftpb.EntryNormal), Data: []byte("put\x00")}},
		)
		require.NoError(t, w.Append(recs))
		if g == 0 {
			require.NoError(t, w.Sync())
		}
	}
	return fs
}

func dump(fs vfs.FS, args ...string) (string, error) {
	var out bytes.Buffer
	err := run(append(args, dir), fs, &out)
	return out.String(), err
}

func TestDump(t *testing.T) {
	fs := written(t)
	out, err := dump(fs, "--data")
	require.NoError(t, err)
	require.Equal(t, `segment /data/wal/0000000000000001.wal: 512 bytes, metadata "server 1"
  56: records, 48 bytes, synced to 56
    group 0 hard state: term 2, vote ab, commit 1
      "\xab\x01\x01"
    group 0 entry 2 of term 2: EntryNormal, 4 bytes
      "put\x00"
  104: records, 48 bytes, synced to 104
    group 1 hard state: term 2, vote ab, commit 1
      "\xab\x01\x01"
    group 1 entry 2 of term 2: EntryNormal, 4 bytes
      "put\x00"
  4 records in 2 frames up to offset 152
`, out)

	out, err = dump(fs, "--group", "1")
	require.NoError(t, err)
	require.Equal(t, `segment /data/wal/0000000000000001.wal: 512 bytes, metadata "server 1"
    group 1 hard state: term 2, vote ab, commit 1
    group 1 entry 2 of term 2: EntryNormal, 4 bytes
  4 records in 2 frames up to offset 152
`, out)
}

func TestCheck(t *testing.T) {
	fs := written(t)
	flip(t, fs, 140)
	out, err := dump(fs, "--check")
	require.NoError(t, err)
	require.Equal(t, `segment /data/wal/0000000000000001.wal: 512 bytes, metadata "server 1"
  104: torn tail of 40 bytes, would be cut: the checksum of the records is wrong
  2 records in 1 frames up to offset 104
`, out)

	fs = written(t)
	flip(t, fs, 90)
	out, err = dump(fs, "--check")
	require.ErrorContains(t, err, "log segment /data/wal/0000000000000001.wal is damaged at offset 56: the checksum of the records is wrong")
	require.Contains(t, out, "0 records in 0 frames")
}

func TestMissingLog(t *testing.T) {
	_, err := dump(vfs.NewMem())
	require.ErrorIs(t, err, wal.ErrMissing)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, run(nil, vfs.NewMem(), nil), "one argument")
}

func flip(t *testing.T, fs vfs.FS, at int64) {
	t.Helper()
	f, err := fs.Open(path.Join(dir, "0000000000000001.wal"))
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

// Who asks how to use it is told which directory it takes.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"--help"}, vfs.NewMem(), &out))
	require.Contains(t, out.String(), "Usage: waldump [flags] DATA-DIR/member/wal\n")
	require.Contains(t, out.String(), "--check")
	require.ErrorContains(t, run(nil, vfs.NewMem(), &out), "DATA-DIR/member/wal")
}
