package etcdwal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// segmentOf encodes records as etcd's encoder does.
func segmentOf(recs ...record) []byte {
	var b []byte
	crc := uint32(0)
	for _, rec := range recs {
		crc = crc32.Update(crc, castagnoli, rec.data)
		r := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), rec.kind)
		r = protowire.AppendVarint(protowire.AppendTag(r, 2, protowire.VarintType), uint64(crc))
		if rec.data != nil {
			r = protowire.AppendBytes(protowire.AppendTag(r, 3, protowire.BytesType), rec.data)
		}
		length, padding := uint64(len(r)), (8-len(r)%8)%8
		if padding > 0 {
			length |= uint64(0x80|padding) << 56
		}
		b = append(binary.LittleEndian.AppendUint64(b, length), r...)
		b = append(b, make([]byte, padding)...)
	}
	return append(b, make([]byte, 100)...)
}

func of(kind uint64, m proto.Message) record {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return record{kind: kind, data: b}
}

func entry(kind raftpb.EntryType, term, index uint64) record {
	return of(typeEntry, &raftpb.Entry{Type: &kind, Term: &term, Index: &index})
}

func hardState(term, commit uint64) record {
	return of(typeState, &raftpb.HardState{Term: &term, Commit: &commit})
}

func snapshotAt(index uint64) record {
	return record{kind: typeSnapshot, data: protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), index)}
}

var (
	crcRecord = record{kind: typeCRC}
	metadata  = of(typeMetadata, &etcdserverpb.Metadata{NodeID: proto.Uint64(0xa), ClusterID: proto.Uint64(0xc)})
	change    = raftpb.EntryConfChange
	normal    = raftpb.EntryNormal
	restored  = []record{crcRecord, metadata, snapshotAt(0), entry(change, 1, 1), entry(change, 1, 2), hardState(1, 2), snapshotAt(2)}
)

func TestRead(t *testing.T) {
	log, err := read(bytes.NewReader(segmentOf(restored...)))
	require.NoError(t, err)
	require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: 2}, log)
}

// The log that etcdutl 3.7.3 has made for one of three members, and the same after a server
// has run on it, both without the empty rest of the segment.
func TestReadEtcds(t *testing.T) {
	f, err := os.ReadFile("testdata/restored.wal")
	require.NoError(t, err)
	log, err := read(bytes.NewReader(f))
	require.NoError(t, err)
	require.Equal(t, uint64(3), log.Last)
	require.Equal(t, uint64(0xed6ff169ebb7c738), log.Member)
	require.Equal(t, uint64(0x0bd150597e07af1d), log.Cluster)

	f, err = os.ReadFile("testdata/used.wal")
	require.NoError(t, err)
	_, err = read(bytes.NewReader(f))
	require.ErrorIs(t, err, ErrUsed)
}

func TestReadUsed(t *testing.T) {
	with := func(more ...record) []record { return append(append([]record{}, restored...), more...) }
	for name, recs := range map[string][]record{
		"empty":                {crcRecord, metadata, snapshotAt(0)},
		"a later term":         with(hardState(2, 2)),
		"an entry":             with(entry(normal, 1, 3)),
		"one overwritten":      with(entry(change, 1, 2)),
		"not committed":        with(entry(change, 1, 3), snapshotAt(3)),
		"without a snapshot":   with(entry(change, 1, 3), hardState(1, 3)),
		"begins in the middle": {crcRecord, metadata, entry(change, 1, 3), hardState(1, 3), snapshotAt(3)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(bytes.NewReader(segmentOf(recs...)))
			require.ErrorIs(t, err, ErrUsed)
		})
	}
}

// A bit that flips anywhere is found, and so is a log that is cut.
func TestReadDamaged(t *testing.T) {
	whole := segmentOf(restored...)
	end := len(bytes.TrimRight(whole, "\x00"))
	for i := range end {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		if log, err := read(bytes.NewReader(b)); err == nil {
			require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: 2}, log, "byte %d", i) // padding
		}
		_, err := read(bytes.NewReader(whole[:i]))
		require.Error(t, err, "cut at %d", i)
	}
	_, err := read(bytes.NewReader(segmentOf(crcRecord, restored[3])))
	require.ErrorIs(t, err, errDamaged)
}

func TestFound(t *testing.T) {
	dir := t.TempDir()
	for _, none := range []string{dir, filepath.Join(dir, "none")} {
		found, err := Found(none)
		require.NoError(t, err)
		require.False(t, found)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000001.wal"), nil, 0o600)) // stoa's
	found, err := Found(dir)
	require.NoError(t, err)
	require.False(t, found)

	require.NoError(t, os.WriteFile(filepath.Join(dir, firstSegment), segmentOf(restored...), 0o600))
	found, err = Found(dir)
	require.NoError(t, err)
	require.True(t, found)
	log, err := Read(dir)
	require.NoError(t, err)
	require.EqualValues(t, 2, log.Last)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000001-0000000000000003.wal"), nil, 0o600))
	_, err = Read(dir)
	require.ErrorIs(t, err, ErrUsed)
}

func FuzzRead(f *testing.F) {
	f.Add(segmentOf(restored...))
	f.Add(segmentOf(crcRecord, metadata))
	f.Fuzz(func(t *testing.T, b []byte) {
		if log, err := read(bytes.NewReader(b)); err == nil && log.Last == 0 {
			t.Fatal("accepted without an entry")
		}
	})
}
