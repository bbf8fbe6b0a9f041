package raftwire

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Bits of a message's mask. New ones go to the end.
const (
	hasType = 1 << iota
	hasTo
	hasFrom
	hasTerm
	hasLogTerm
	hasIndex
	hasCommit
	hasVote
	hasReject
	rejectTrue
	hasRejectHint
	hasContext
	hasEntries

	knownMask = 1<<iota - 1
)

// Bits of an entry's flag byte; the lowest two are its type.
const (
	entryHasType = 1 << (iota + 2)
	entryHasTerm
	entryHasIndex
	entryHasData

	knownEntryFlags = 1<<(iota+2) - 1
	entryTypeMask   = 3
)

// Append appends m, a message of group, to a list. The list refers to the data of m's
// entries, which must not change.
func Append(list [][]byte, group uint32, m *raftpb.Message) [][]byte {
	if !compact(m) {
		return append(list, appendProto(group, m))
	}
	list = append(list, appendHead(group, m))
	for _, e := range m.Entries {
		if e.Data != nil {
			list = append(list, e.Data)
		}
	}
	return list
}

func appendHead(group uint32, m *raftpb.Message) []byte {
	mask := maskOf(m)
	b := make([]byte, 0, binary.MaxVarintLen32+headSize(mask, m))
	b = binary.AppendUvarint(b, uint64(group))
	b = binary.AppendUvarint(b, uint64(mask))
	if mask&hasType != 0 {
		b = binary.AppendUvarint(b, uint64(m.GetType()))
	}
	// Server ids are hashes: a varint of theirs would be longer than eight bytes.
	b = appendFixed(b, m.To)
	b = appendFixed(b, m.From)
	b = appendVarint(b, m.Term)
	b = appendVarint(b, m.LogTerm)
	b = appendVarint(b, m.Index)
	b = appendVarint(b, m.Commit)
	b = appendFixed(b, m.Vote)
	b = appendVarint(b, m.RejectHint)
	if m.Context != nil {
		b = appendBytes(b, m.Context)
	}
	if len(m.Entries) > 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Entries)))
		for _, e := range m.Entries {
			b = appendEntry(b, e)
		}
	}
	return b
}

// compact reports whether the compact form can hold all of m.
func compact(m *raftpb.Message) bool {
	if m.Snapshot != nil || len(m.Responses) > 0 || m.GetType() < 0 || len(m.ProtoReflect().GetUnknown()) > 0 {
		return false
	}
	for _, e := range m.Entries {
		if e == nil || e.GetType() < 0 || e.GetType() > entryTypeMask || len(e.ProtoReflect().GetUnknown()) > 0 {
			return false
		}
	}
	return maskOf(m) != 0
}

func appendProto(group uint32, m *raftpb.Message) []byte {
	b := append(binary.AppendUvarint(nil, uint64(group)), 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		// raftpb has neither required fields nor strings, so there is nothing
		// that could be wrong with a message.
		panic(fmt.Sprintf("raftwire: marshal %v: %v", m.GetType(), err))
	}
	return b
}

func maskOf(m *raftpb.Message) (mask uint32) {
	set := func(present bool, bit uint32) {
		if present {
			mask |= bit
		}
	}
	set(m.Type != nil, hasType)
	set(m.To != nil, hasTo)
	set(m.From != nil, hasFrom)
	set(m.Term != nil, hasTerm)
	set(m.LogTerm != nil, hasLogTerm)
	set(m.Index != nil, hasIndex)
	set(m.Commit != nil, hasCommit)
	set(m.Vote != nil, hasVote)
	set(m.Reject != nil, hasReject)
	set(m.GetReject(), rejectTrue)
	set(m.RejectHint != nil, hasRejectHint)
	set(m.Context != nil, hasContext)
	set(len(m.Entries) > 0, hasEntries)
	return mask
}

func headSize(mask uint32, m *raftpb.Message) int {
	n := uvarintSize(uint64(mask))
	if mask&hasType != 0 {
		n += uvarintSize(uint64(m.GetType()))
	}
	n += fixedSize(m.To) + fixedSize(m.From) + fixedSize(m.Vote)
	n += varintSize(m.Term) + varintSize(m.LogTerm) + varintSize(m.Index) + varintSize(m.Commit) + varintSize(m.RejectHint)
	if m.Context != nil {
		n += bytesSize(m.Context)
	}
	if len(m.Entries) > 0 {
		n += uvarintSize(uint64(len(m.Entries)))
		for _, e := range m.Entries {
			n += 1 + varintSize(e.Term) + varintSize(e.Index)
		}
	}
	return n
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	flags := byte(e.GetType())
	if e.Type != nil {
		flags |= entryHasType
	}
	if e.Term != nil {
		flags |= entryHasTerm
	}
	if e.Index != nil {
		flags |= entryHasIndex
	}
	if e.Data != nil {
		flags |= entryHasData
	}
	b = append(b, flags)
	b = appendVarint(b, e.Term)
	return appendVarint(b, e.Index)
}

func appendFixed(b []byte, v *uint64) []byte {
	if v == nil {
		return b
	}
	return binary.LittleEndian.AppendUint64(b, *v)
}

func appendVarint(b []byte, v *uint64) []byte {
	if v == nil {
		return b
	}
	return binary.AppendUvarint(b, *v)
}

func appendBytes(b, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func varintSize(v *uint64) int {
	if v == nil {
		return 0
	}
	return uvarintSize(*v)
}

func fixedSize(v *uint64) int {
	if v == nil {
		return 0
	}
	return 8
}

func bytesSize(v []byte) int { return uvarintSize(uint64(len(v))) + len(v) }
