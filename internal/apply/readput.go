package apply

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers of PutRequest.
const (
	putKey protowire.Number = iota + 1
	putValue
	putLease
	putPrevKv
	putIgnoreValue
	putIgnoreLease
)

var errFieldNumber = errors.New("field number out of range")

// readPut reads a marshalled PutRequest exactly as proto.Unmarshal does (a fuzz
// test compares them), but without a message and without copying: the slices
// alias b.
func readPut(b []byte) (p put, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return p, protowire.ParseError(n)
		}
		if number > protowire.MaxValidNumber {
			return p, errFieldNumber
		}
		b = b[n:]
		switch {
		case kind == protowire.BytesType && number <= putValue:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n >= 0 {
				p.setBytes(number, v)
			}
		case kind == protowire.VarintType && number >= putLease && number <= putIgnoreLease:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				p.setNumber(number, v)
			}
		default: // of a newer client
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return p, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return p, nil
}

func (p *put) setBytes(number protowire.Number, v []byte) {
	if number == putKey {
		p.key = v
	} else {
		p.value = v
	}
}

func (p *put) setNumber(number protowire.Number, v uint64) {
	switch number {
	case putLease:
		p.lease = int64(v)
	case putPrevKv:
		p.prevKv = v != 0
	case putIgnoreValue:
		p.ignoreValue = v != 0
	case putIgnoreLease:
		p.ignoreLease = v != 0
	}
}
