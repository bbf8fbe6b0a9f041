package engine

import (
	"google.golang.org/protobuf/encoding/protowire"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Requests are encoded by hand: on the way of a put or a get, building the message
// of api/stoa/v1 and the one of etcd inside it would be most of the work. The
// field numbers are those of session.proto and of etcd's rpc.proto; the tests
// compare with what the generated code does.
const (
	batchAnswered = protowire.Number(2)
	batchRequests = protowire.Number(3)

	requestSeq      = protowire.Number(1)
	requestKind     = protowire.Number(2)
	requestLevel    = protowire.Number(3)
	requestRevision = protowire.Number(4)
	requestBody     = protowire.Number(5)

	putKey   = protowire.Number(1)
	putValue = protowire.Number(2)
	putLease = protowire.Number(3)

	rangeKey          = protowire.Number(1)
	rangeSerializable = protowire.Number(7)
)

// request is a request before it has a number. The body is either marshalled
// already or, for a put, get or delete of one key without options, made of key,
// value and lease.
type request struct {
	kind       stoapb.Kind
	level      Level
	key, value string
	lease      int64
	body       []byte
	plain      bool // made of key, value and lease
	to         answerable
	refused    error // set if it can't be sent
}

func (r *request) bodySize() int {
	if !r.plain {
		return len(r.body)
	}
	n := bytesField(len(r.key))
	if r.kind == stoapb.Kind_PUT {
		n += bytesField(len(r.value)) + varintField(uint64(r.lease))
	}
	if r.kind == stoapb.Kind_RANGE && r.level == Fast {
		n += varintField(1)
	}
	return n
}

// appendRequest appends the request as an element of ClientBatch.requests.
func appendRequest(b []byte, r *request, seq uint64, revision int64) []byte {
	body := r.bodySize()
	size := varintField(seq) + varintField(uint64(r.kind)) + varintField(uint64(r.level)) +
		varintField(uint64(revision)) + bytesField(body)
	b = protowire.AppendTag(b, batchRequests, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendVarint(b, requestSeq, seq)
	b = appendVarint(b, requestKind, uint64(r.kind))
	b = appendVarint(b, requestLevel, uint64(r.level))
	b = appendVarint(b, requestRevision, uint64(revision))
	if body == 0 {
		return b
	}
	b = protowire.AppendTag(b, requestBody, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(body))
	if !r.plain {
		return append(b, r.body...)
	}
	b = appendString(b, putKey, r.key)
	switch {
	case r.kind == stoapb.Kind_PUT:
		b = appendString(b, putValue, r.value)
		b = appendVarint(b, putLease, uint64(r.lease))
	case r.kind == stoapb.Kind_RANGE && r.level == Fast:
		b = appendVarint(b, rangeSerializable, 1)
	}
	return b
}

// requestOverhead is more than what appendRequest puts around key, value and body.
const requestOverhead = 96

func appendAnswered(b []byte, seq uint64) []byte { return appendVarint(b, batchAnswered, seq) }

// A field with the zero value isn't there, as in all of proto3. All numbers of
// fields here fit a tag of one byte.

func varintField(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func bytesField(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
