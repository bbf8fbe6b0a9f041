package wal

import (
	"encoding/binary"
	"errors"
)

// Record is the unit that callers append and replay.
type Record struct {
	Group uint32
	// Kind is defined by the caller.
	Kind uint8
	// Index tells Release when the record can go: it is needed while
	// keep[Group] <= Index. 0: never needed for its own sake, because
	// Options.Head repeats its content.
	Index uint64
	// Note is a second number of the caller's, kept with the record; a Raft
	// log puts the entry's term here and spares itself a copy of the data.
	Note uint64
	Data []byte
}

var errMalformed = errors.New("malformed record")

// appendRecord encodes group, kind, index, note and the length of the data as
// varints and a byte, then the data.
func appendRecord(b []byte, r *Record) []byte {
	b = binary.AppendUvarint(b, uint64(r.Group))
	b = append(b, r.Kind)
	b = binary.AppendUvarint(b, r.Index)
	b = binary.AppendUvarint(b, r.Note)
	b = binary.AppendUvarint(b, uint64(len(r.Data)))
	return append(b, r.Data...)
}

// decodeRecord takes one record off the front of b; its data aliases b.
func decodeRecord(b []byte) (r Record, rest []byte, err error) {
	group, b, ok := uvarint(b)
	if !ok || group > 1<<32-1 || len(b) == 0 {
		return Record{}, nil, errMalformed
	}
	r.Group, r.Kind, b = uint32(group), b[0], b[1:]
	var size uint64
	if r.Index, b, ok = uvarint(b); !ok {
		return Record{}, nil, errMalformed
	}
	if r.Note, b, ok = uvarint(b); !ok {
		return Record{}, nil, errMalformed
	}
	if size, b, ok = uvarint(b); !ok || size > uint64(len(b)) {
		return Record{}, nil, errMalformed
	}
	r.Data = b[:size:size]
	return r, b[size:], nil
}

func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}
