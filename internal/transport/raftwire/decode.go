package raftwire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// ErrMalformed is inside every error of Next.
var ErrMalformed = errors.New("malformed raft message")

// message holds a decoded message together with the scalars that its fields
// point to, so that one allocation serves for all.
type message struct {
	m                                                        raftpb.Message
	typ                                                      raftpb.MessageType
	to, from, term, logTerm, index, commit, vote, rejectHint uint64
	reject                                                   bool
}

type entry struct {
	e           raftpb.Entry
	typ         raftpb.EntryType
	term, index uint64
}

// Next decodes the first message of a list and returns what follows it. The message
// points into the list's strings, which must not be changed afterwards.
func Next(list [][]byte) (group uint32, m *raftpb.Message, rest [][]byte, err error) {
	if len(list) == 0 {
		return 0, nil, nil, fmt.Errorf("%w: nothing there", ErrMalformed)
	}
	r := reader{b: list[0], data: list[1:]}
	g := r.uvarint()
	mask := r.uvarint()
	if r.bad || g > 1<<32-1 {
		return 0, nil, nil, fmt.Errorf("%w: a head of %d bytes", ErrMalformed, len(list[0]))
	}
	m, err = r.message(mask)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%w of group %d: %w", ErrMalformed, g, err)
	}
	return uint32(g), m, r.data, nil
}

func (r *reader) message(mask uint64) (*raftpb.Message, error) {
	if mask == 0 {
		m := new(raftpb.Message)
		if err := proto.Unmarshal(r.b, m); err != nil {
			return nil, fmt.Errorf("decode protobuf: %w", err)
		}
		return m, nil
	}
	if mask&^knownMask != 0 {
		return nil, fmt.Errorf("unknown fields %#x", mask&^knownMask)
	}
	d := new(message)
	d.fields(r, mask)
	if mask&hasEntries != 0 {
		d.m.Entries = decodeEntries(r)
	}
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("its head doesn't fit its content, %d bytes are left", len(r.b))
	}
	return &d.m, nil
}

func (d *message) fields(r *reader, mask uint64) {
	if mask&hasType != 0 {
		t := r.uvarint()
		if t > 1<<31-1 {
			r.bad = true
		}
		d.typ = raftpb.MessageType(t)
		d.m.Type = &d.typ
	}
	fixed := func(bit uint64, to *uint64, field **uint64) {
		if mask&bit != 0 {
			*to = r.fixed64()
			*field = to
		}
	}
	varint := func(bit uint64, to *uint64, field **uint64) {
		if mask&bit != 0 {
			*to = r.uvarint()
			*field = to
		}
	}
	fixed(hasTo, &d.to, &d.m.To)
	fixed(hasFrom, &d.from, &d.m.From)
	varint(hasTerm, &d.term, &d.m.Term)
	varint(hasLogTerm, &d.logTerm, &d.m.LogTerm)
	varint(hasIndex, &d.index, &d.m.Index)
	varint(hasCommit, &d.commit, &d.m.Commit)
	fixed(hasVote, &d.vote, &d.m.Vote)
	if mask&hasReject != 0 {
		d.reject = mask&rejectTrue != 0
		d.m.Reject = &d.reject
	}
	varint(hasRejectHint, &d.rejectHint, &d.m.RejectHint)
	if mask&hasContext != 0 {
		d.m.Context = r.bytes()
	}
}

func decodeEntries(r *reader) []*raftpb.Entry {
	n := r.uvarint()
	// An entry takes at least a byte, so a larger count is invalid, and must
	// not cause an allocation.
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	// The entries of one message are appended, kept and dropped together, so
	// that these share their memory costs nothing.
	slab := make([]entry, n)
	list := make([]*raftpb.Entry, n)
	for i := range slab {
		slab[i].decode(r)
		if r.bad {
			return nil
		}
		list[i] = &slab[i].e
	}
	return list
}

func (e *entry) decode(r *reader) {
	flags := r.byte()
	if flags&^knownEntryFlags != 0 {
		r.bad = true
	}
	if flags&entryHasType != 0 {
		e.typ = raftpb.EntryType(flags & entryTypeMask)
		e.e.Type = &e.typ
	}
	if flags&entryHasTerm != 0 {
		e.term = r.uvarint()
		e.e.Term = &e.term
	}
	if flags&entryHasIndex != 0 {
		e.index = r.uvarint()
		e.e.Index = &e.index
	}
	if flags&entryHasData != 0 {
		e.e.Data = r.next()
	}
}

// reader consumes the values of a message's head, and the data after it. After
// an error bad stays set and everything reads as zero, so that callers check
// once at the end.
type reader struct {
	b    []byte
	data [][]byte
	bad  bool
}

// next returns the data of the next entry; nil would mean that it has none.
func (r *reader) next() []byte {
	if len(r.data) == 0 {
		r.bad = true
		return nil
	}
	v := r.data[0]
	r.data = r.data[1:]
	if v == nil {
		return []byte{}
	}
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// bytes never returns nil, so that a field that was present stays so; its
// capacity ends with it, so that an append can't reach the next field.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
