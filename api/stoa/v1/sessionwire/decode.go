package sessionwire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

var (
	errUTF8   = errors.New("a string that is not UTF-8")
	errNumber = errors.New("a field number out of range")
)

// Decode replaces the batch by what b holds; its requests alias b.
func (c *ClientBatch) Decode(b []byte) error {
	c.Reset()
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("reading a client batch: %w", err)
		}
		b = rest
		switch {
		case f.is(batchFirst, protowire.BytesType):
			if c.Open == nil {
				c.Open = new(stoapb.OpenSession)
			}
			err = merge(f.bytes, c.Open)
		case f.is(batchAnswered, protowire.VarintType):
			c.Answered = f.number
		case f.is(batchRequests, protowire.BytesType):
			c.Requests = append(c.Requests, Request{})
			err = c.Requests[len(c.Requests)-1].decode(f.bytes)
		}
		if err != nil {
			return fmt.Errorf("reading a client batch: %w", err)
		}
	}
	return nil
}

func merge(b []byte, into proto.Message) error {
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, into)
}

func (r *Request) decode(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		b = rest
		switch {
		case f.is(requestSeq, protowire.VarintType):
			r.Seq = f.number
		case f.is(requestKind, protowire.VarintType):
			r.Kind = stoapb.Kind(f.number)
		case f.is(requestLevel, protowire.VarintType):
			r.Level = stoapb.Level(f.number)
		case f.is(requestRevision, protowire.VarintType):
			r.Revision = int64(f.number)
		case f.is(requestBody, protowire.BytesType):
			r.Body = f.bytes
		}
	}
	return nil
}

// Decode replaces the batch by what b holds; the bodies of its replies alias b.
func (s *ServerBatch) Decode(b []byte) error {
	s.Reset()
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("reading a server batch: %w", err)
		}
		b = rest
		switch {
		case f.is(batchFirst, protowire.BytesType):
			if s.Opened == nil {
				s.Opened = new(stoapb.Opened)
			}
			err = merge(f.bytes, s.Opened)
		case f.is(batchReplies, protowire.BytesType):
			s.Replies = append(s.Replies, Reply{})
			err = s.Replies[len(s.Replies)-1].decode(f.bytes)
		case f.is(batchMap, protowire.BytesType):
			if s.PartitionMap == nil {
				s.PartitionMap = new(stoapb.PartitionMap)
			}
			err = merge(f.bytes, s.PartitionMap)
		}
		if err != nil {
			return fmt.Errorf("reading a server batch: %w", err)
		}
	}
	return nil
}

func (r *Reply) decode(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		b = rest
		switch {
		case f.is(replySeq, protowire.VarintType):
			r.Seq = f.number
		case f.is(replyEvent, protowire.VarintType):
			r.Event = f.number != 0
		case f.is(replyCode, protowire.VarintType):
			r.Code = uint32(f.number)
		case f.is(replyMessage, protowire.BytesType):
			if !utf8.Valid(f.bytes) {
				return errUTF8
			}
			r.Message = string(f.bytes)
		case f.is(replyBody, protowire.BytesType):
			r.Body = f.bytes
		case f.is(replyRevision, protowire.VarintType):
			r.Revision = int64(f.number)
		}
	}
	return nil
}

// field is one field of a message. One of an unexpected type, or with a number
// that isn't known, is passed over, as generated code does.
type field struct {
	tag    protowire.Number
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (f *field) is(n protowire.Number, t protowire.Type) bool { return f.tag == n && f.kind == t }

func next(b []byte) (f field, rest []byte, err error) {
	var n int
	if b[0] < 0x80 { // a number below 16, and all that this format has
		f.tag, f.kind, n = protowire.Number(b[0]>>3), protowire.Type(b[0]&7), 1
	} else if f.tag, f.kind, n = protowire.ConsumeTag(b); n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	if f.tag < protowire.MinValidNumber || f.tag > protowire.MaxValidNumber {
		return f, nil, errNumber
	}
	b = b[n:]
	switch f.kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
		if n >= 0 {
			f.bytes = f.bytes[:len(f.bytes):len(f.bytes)]
		}
	default:
		n = protowire.ConsumeFieldValue(f.tag, f.kind, b)
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}
