package raftlog

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/wal"
)

// Kinds of records. The fields of wal.Record are used, so that an entry needs
// no encoding of its own and its data is not copied:
//
//	kind             index     note    data
//	kindHardState    0         term    uvarint vote, uvarint commit
//	kindReset        position  term    a hard state: uvarint term, vote, commit
//	kindEntry+type   index     term    the entry's data
const (
	kindHardState uint8 = 1
	kindReset     uint8 = 2
	kindEntry     uint8 = 16
)

// maxEntryType is Raft's highest entry type.
const maxEntryType = uint8(pb.EntryType_EntryConfChangeV2)

// hardState is raftpb.HardState without its pointers.
type hardState struct {
	term, vote, commit uint64
}

func (h hardState) proto() *pb.HardState {
	return &pb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

func hardStateRecord(group uint32, h hardState) wal.Record {
	b := make([]byte, 0, 2*binary.MaxVarintLen64)
	b = binary.AppendUvarint(b, h.vote)
	b = binary.AppendUvarint(b, h.commit)
	return wal.Record{Group: group, Kind: kindHardState, Note: h.term, Data: b}
}

func resetRecord(group uint32, at Position, h hardState) wal.Record {
	b := make([]byte, 0, 3*binary.MaxVarintLen64)
	b = binary.AppendUvarint(b, h.term)
	b = binary.AppendUvarint(b, h.vote)
	b = binary.AppendUvarint(b, h.commit)
	return wal.Record{Group: group, Kind: kindReset, Index: at.Index, Note: at.Term, Data: b}
}

func entryRecord(group uint32, e *pb.Entry) wal.Record {
	return wal.Record{
		Group: group,
		Kind:  kindEntry + uint8(e.GetType()),
		Index: e.GetIndex(),
		Note:  e.GetTerm(),
		Data:  e.GetData(),
	}
}

// decodeEntry builds the entry with a copy of the record's data, in two
// allocations instead of five.
func decodeEntry(r wal.Record) *pb.Entry {
	e := &struct {
		pb.Entry
		term, index uint64
		kind        pb.EntryType
	}{term: r.Note, index: r.Index, kind: pb.EntryType(r.Kind - kindEntry)}
	e.Term, e.Index, e.Type = &e.term, &e.index, &e.kind
	if len(r.Data) > 0 {
		e.Data = append([]byte(nil), r.Data...)
	}
	return &e.Entry
}

func decodeHardState(r wal.Record) (hardState, error) {
	n, err := uvarints(r.Data, 2)
	if err != nil {
		return hardState{}, err
	}
	return hardState{term: r.Note, vote: n[0], commit: n[1]}, nil
}

func decodeReset(r wal.Record) (Position, hardState, error) {
	n, err := uvarints(r.Data, 3)
	if err != nil {
		return Position{}, hardState{}, err
	}
	return Position{r.Index, r.Note}, hardState{n[0], n[1], n[2]}, nil
}

// uvarints reads exactly n numbers.
func uvarints(b []byte, n int) (v [3]uint64, err error) {
	for i := range n {
		x, size := binary.Uvarint(b)
		if size <= 0 {
			return v, fmt.Errorf("%d numbers expected, number %d is malformed", n, i+1)
		}
		v[i], b = x, b[size:]
	}
	if len(b) > 0 {
		return v, fmt.Errorf("%d numbers expected, %d bytes are left over", n, len(b))
	}
	return v, nil
}

// Describe describes a record of a group's log in one line, for cmd/waldump.
func Describe(r wal.Record) string {
	switch {
	case r.Kind == kindHardState:
		h, err := decodeHardState(r)
		if err != nil {
			return "hard state: " + err.Error()
		}
		return fmt.Sprintf("hard state: term %d, vote %x, commit %d", h.term, h.vote, h.commit)
	case r.Kind == kindReset:
		at, h, err := decodeReset(r)
		if err != nil {
			return "reset: " + err.Error()
		}
		return fmt.Sprintf("reset to index %d of term %d: term %d, vote %x, commit %d", at.Index, at.Term, h.term, h.vote, h.commit)
	case isEntry(r):
		return fmt.Sprintf("entry %d of term %d: %s, %d bytes", r.Index, r.Note, pb.EntryType(r.Kind-kindEntry), len(r.Data))
	}
	return fmt.Sprintf("unknown kind %d, index %d, note %d, %d bytes", r.Kind, r.Index, r.Note, len(r.Data))
}

func isEntry(r wal.Record) bool { return r.Kind >= kindEntry && r.Kind <= kindEntry+maxEntryType }
