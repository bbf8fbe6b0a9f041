// Package protofield walks over the fields of a marshalled protobuf message, for those who
// need a few of them, keep the others as they are, or have fields that no .proto has.
//
// What every request passes is decoded in packages of its own (kvwire, api/stoa/v1/sessionwire),
// which may assume more of a message.
//
// The package imports nothing of stoa.
package protofield

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Field is one field of a message. Its slices alias the message's, and can't be appended to.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Whole  []byte // all its bytes, the tag included
	Varint uint64 // of type VarintType, else 0
	Bytes  []byte // of type BytesType, else nil
}

// All are the fields of a message in their order. At the first that can't be read there is an
// error of package protowire, and no further one.
func All(message []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for b := message; len(b) > 0; {
			f, n := next(b)
			if n < 0 {
				yield(Field{}, protowire.ParseError(n))
				return
			}
			f.Whole = b[:n:n]
			if !yield(f, nil) {
				return
			}
			b = b[n:]
		}
	}
}

// Find is the first field of a number and a type, before anything that can't be read.
func Find(message []byte, number protowire.Number, kind protowire.Type) (Field, bool) {
	for f, err := range All(message) {
		if err == nil && f.Number == number && f.Type == kind {
			return f, true
		}
	}
	return Field{}, false
}

// next reads one field, and returns its length: negative if it can't be read.
func next(b []byte) (f Field, n int) {
	number, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return f, tag
	}
	f.Number, f.Type = number, kind
	switch b = b[tag:]; kind {
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(b)
		f.Bytes = f.Bytes[:len(f.Bytes):len(f.Bytes)]
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return f, n
	}
	return f, tag + n
}
