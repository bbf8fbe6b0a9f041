package kvwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of a range have numbers below 16, so their tags are bytes.

// ReadRange reads a RangeRequest whose fields are all known into m, which is
// new. Its keys alias b. It returns false for anything else: protobuf has to
// decode that, or to report the error.
func ReadRange(b []byte, m *pb.RangeRequest) bool {
	return eachField(b, func(f field) bool {
		switch f.tag {
		case 1<<3 | bytesType:
			m.Key = f.bytes
		case 2<<3 | bytesType:
			m.RangeEnd = f.bytes
		case 3 << 3:
			m.Limit = int64(f.number)
		case 4 << 3:
			m.Revision = int64(f.number)
		case 5 << 3:
			m.SortOrder = pb.RangeRequest_SortOrder(f.number)
		case 6 << 3:
			m.SortTarget = pb.RangeRequest_SortTarget(f.number)
		case 7 << 3:
			m.Serializable = f.number != 0
		case 8 << 3:
			m.KeysOnly = f.number != 0
		case 9 << 3:
			m.CountOnly = f.number != 0
		case 10 << 3:
			m.MinModRevision = int64(f.number)
		case 11 << 3:
			m.MaxModRevision = int64(f.number)
		case 12 << 3:
			m.MinCreateRevision = int64(f.number)
		case 13 << 3:
			m.MaxCreateRevision = int64(f.number)
		default:
			return false
		}
		return true
	})
}

// ReadGet returns the key of a RangeRequest that has no other field, false
// for any other. The key aliases b.
func ReadGet(b []byte) (key []byte, ok bool) {
	if len(b) == 0 || b[0] != 1<<3|bytesType {
		return nil, len(b) == 0
	}
	key, n := protowire.ConsumeBytes(b[1:])
	return key, 1+n == len(b)
}

const bytesType = byte(protowire.BytesType)

// field is one field of a message: its tag, and what it holds.
type field struct {
	tag    byte
	bytes  []byte // nil if empty, as protobuf has it
	number uint64
}

// eachField passes all fields of a message to take. It returns false at the
// first malformed field or one that take doesn't know.
func eachField(b []byte, take func(field) bool) bool {
	for len(b) > 0 {
		f, rest, ok := nextField(b)
		if !ok || !take(f) {
			return false
		}
		b = rest
	}
	return true
}

// nextField consumes a field at the front of b, if its tag is one byte and
// its type a number or bytes.
func nextField(b []byte) (f field, rest []byte, ok bool) {
	f.tag = b[0]
	n := 0
	switch protowire.Type(f.tag & 7) {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b[1:])
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b[1:])
		if len(f.bytes) == 0 {
			f.bytes = nil
		}
	default:
		return f, nil, false
	}
	if f.tag >= 0x80 || n < 0 {
		return f, nil, false
	}
	return f, b[1+n:], true
}
