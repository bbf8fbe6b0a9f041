package etcdwal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// segmentOf encodes records as etcd's encoder does.
func segmentOf(recs ...record) []byte { return appendRecords(nil, 0, recs) }

// segmentAfter is one that follows records with a checksum.
func segmentAfter(crc uint32, recs ...record) []byte {
	return appendRecords(nil, crc, append([]record{crcRecord}, recs...))
}

func appendRecords(b []byte, crc uint32, recs []record) []byte {
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

// read reads one segment.
func read(b []byte) (Log, error) {
	c, d := content{fresh: true}, decoder{}
	if err := c.read(&d, bytes.NewReader(b), int64(len(b))); err != nil {
		return Log{}, err
	}
	return c.finish()
}

func TestRead(t *testing.T) {
	log, err := read(segmentOf(restored...))
	require.NoError(t, err)
	require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: 2, Fresh: true}, log)
}

// The log that etcdutl 3.7.3 has made for one of three members, and the same after a server
// has run on it, both without the empty rest of the segment.
func TestReadEtcds(t *testing.T) {
	f, err := os.ReadFile("testdata/restored.wal")
	require.NoError(t, err)
	log, err := read(f)
	require.NoError(t, err)
	require.Equal(t, Log{Cluster: 0x0bd150597e07af1d, Member: 0xed6ff169ebb7c738, Last: 3, Fresh: true}, log)

	f, err = os.ReadFile("testdata/used.wal")
	require.NoError(t, err)
	log, err = read(f)
	require.NoError(t, err)
	require.False(t, log.Fresh)
	require.Greater(t, log.Last, uint64(3))
}

func TestReadUsed(t *testing.T) {
	with := func(more ...record) []record { return append(append([]record{}, restored...), more...) }
	for name, c := range map[string]struct {
		recs []record
		last uint64
	}{
		"empty":                {[]record{crcRecord, metadata, snapshotAt(0)}, 0},
		"a later term":         {with(hardState(2, 2)), 2},
		"an entry":             {with(entry(normal, 1, 3)), 3},
		"one overwritten":      {with(entry(normal, 2, 3), entry(normal, 2, 4), entry(normal, 3, 3)), 3},
		"not committed":        {with(entry(change, 1, 3), snapshotAt(3)), 3},
		"without a snapshot":   {with(entry(change, 1, 3), hardState(1, 3)), 3},
		"begins in the middle": {[]record{crcRecord, metadata, entry(change, 1, 3), hardState(1, 3), snapshotAt(3)}, 3},
		"a large entry": {with(of(typeEntry, &raftpb.Entry{Type: &normal, Term: proto.Uint64(2), Index: proto.Uint64(3),
			Data: make([]byte, 3<<20)})), 3},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := read(segmentOf(c.recs...))
			require.NoError(t, err)
			require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: c.last}, log)
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
		if log, err := read(b); err == nil {
			require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: 2, Fresh: true}, log, "byte %d", i) // padding
		}
		if log, err := read(whole[:i]); err == nil {
			require.False(t, log.Fresh, "cut at %d", i) // between records
		}
	}
	t.Logf("%d bytes flipped, %d cuts", end, end)
	_, err := read(segmentOf(crcRecord, restored[3]))
	require.ErrorIs(t, err, ErrDamaged)
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
}

// A log of several segments, the first of which etcd has removed.
func TestReadSegments(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	one := segmentOf(crcRecord, metadata, snapshotAt(2), entry(normal, 2, 3), entry(normal, 2, 4))
	sum := crc32.Checksum(slices.Concat(metadata.data, snapshotAt(2).data, entry(normal, 2, 3).data, entry(normal, 2, 4).data), castagnoli)
	two := segmentAfter(sum, metadata, hardState(2, 4), entry(normal, 3, 4), entry(normal, 3, 5))
	write("0000000000000003-0000000000000003.wal", one)
	write("0000000000000004-0000000000000005.wal", two)
	found, err := Found(dir)
	require.NoError(t, err)
	require.True(t, found)
	log, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, Log{Cluster: 0xc, Member: 0xa, Last: 5}, log)

	write("0000000000000004-0000000000000005.wal", segmentAfter(sum+1, metadata, entry(normal, 3, 5)))
	_, err = Read(dir)
	require.ErrorIs(t, err, ErrDamaged)
	require.NoError(t, os.Rename(filepath.Join(dir, "0000000000000004-0000000000000005.wal"), filepath.Join(dir, "0000000000000005-0000000000000005.wal")))
	_, err = Read(dir)
	require.ErrorContains(t, err, "missing")
}

func FuzzRead(f *testing.F) {
	f.Add(segmentOf(restored...))
	f.Add(segmentOf(crcRecord, metadata))
	f.Fuzz(func(t *testing.T, b []byte) {
		if log, err := read(b); err == nil && log.Fresh && log.Last == 0 {
			t.Fatal("fresh without an entry")
		}
	})
}
