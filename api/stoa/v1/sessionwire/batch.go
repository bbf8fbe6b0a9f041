package sessionwire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Request is a stoapb.Request.
type Request struct {
	Seq      uint64
	Kind     stoapb.Kind
	Level    stoapb.Level
	Revision int64
	Body     []byte
}

// Reply is a stoapb.Reply.
type Reply struct {
	Seq      uint64
	Event    bool
	Code     uint32
	Message  string
	Body     []byte
	Revision int64
}

// ClientBatch is a stoapb.ClientBatch.
type ClientBatch struct {
	Open     *stoapb.OpenSession
	Answered uint64
	Requests []Request
}

// ServerBatch is a stoapb.ServerBatch.
type ServerBatch struct {
	Opened       *stoapb.Opened
	Replies      []Reply
	PartitionMap *stoapb.PartitionMap
}

// Reset empties the batch and keeps its memory.
func (b *ClientBatch) Reset() {
	clear(b.Requests)
	*b = ClientBatch{Requests: b.Requests[:0]}
}

// Reset empties the batch and keeps its memory.
func (b *ServerBatch) Reset() {
	clear(b.Replies)
	*b = ServerBatch{Replies: b.Replies[:0]}
}

// Field numbers of session.proto.
const (
	batchFirst    = 1 // open, opened
	batchAnswered = 2
	batchReplies  = 2
	batchRequests = 3
	batchMap      = 3

	requestSeq      = 1
	requestKind     = 2
	requestLevel    = 3
	requestRevision = 4
	requestBody     = 5

	replySeq      = 1
	replyEvent    = 2
	replyCode     = 3
	replyMessage  = 4
	replyBody     = 5
	replyRevision = 6
)

// AppendTo appends the encoded batch to to.
func (b *ClientBatch) AppendTo(to []byte) ([]byte, error) {
	var err error
	if b.Open != nil {
		if to, err = appendMessage(to, batchFirst, b.Open); err != nil {
			return to, err
		}
	}
	to = appendUint(to, batchAnswered, b.Answered)
	for i := range b.Requests {
		r := &b.Requests[i]
		to = protowire.AppendTag(to, batchRequests, protowire.BytesType)
		to = protowire.AppendVarint(to, uint64(r.size()))
		to = r.appendTo(to)
	}
	return to, nil
}

func (r *Request) size() int {
	return sizeUint(requestSeq, r.Seq) + sizeUint(requestKind, uint64(r.Kind)) + sizeUint(requestLevel, uint64(r.Level)) +
		sizeUint(requestRevision, uint64(r.Revision)) + sizeBytes(requestBody, len(r.Body))
}

func (r *Request) appendTo(to []byte) []byte {
	to = appendUint(to, requestSeq, r.Seq)
	to = appendUint(to, requestKind, uint64(r.Kind))
	to = appendUint(to, requestLevel, uint64(r.Level))
	to = appendUint(to, requestRevision, uint64(r.Revision))
	return appendBytes(to, requestBody, r.Body)
}

// AppendTo appends the encoded batch to to.
func (b *ServerBatch) AppendTo(to []byte) ([]byte, error) {
	var err error
	if b.Opened != nil {
		if to, err = appendMessage(to, batchFirst, b.Opened); err != nil {
			return to, err
		}
	}
	for i := range b.Replies {
		r := &b.Replies[i]
		to = AppendReplyHead(to, r, len(r.Body))
		to = append(to, r.Body...)
	}
	if b.PartitionMap != nil {
		to, err = appendMessage(to, batchMap, b.PartitionMap)
	}
	return to, err
}

// AppendReplyHead appends a reply up to where its body begins, which is of the
// given size and which the caller appends: so a response is encoded where it goes.
// A ServerBatch is the sequence of its replies.
func AppendReplyHead(to []byte, r *Reply, body int) []byte {
	size := sizeUint(replySeq, r.Seq) + sizeUint(replyCode, uint64(r.Code)) + sizeBytes(replyMessage, len(r.Message)) +
		sizeUint(replyRevision, uint64(r.Revision)) + sizeBytes(replyBody, body)
	if r.Event {
		size += 2
	}
	to = protowire.AppendTag(to, batchReplies, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(size))
	to = appendUint(to, replySeq, r.Seq)
	if r.Event {
		to = appendUint(to, replyEvent, 1)
	}
	to = appendUint(to, replyCode, uint64(r.Code))
	if len(r.Message) > 0 {
		to = protowire.AppendTag(to, replyMessage, protowire.BytesType)
		to = protowire.AppendString(to, r.Message)
	}
	// The body last, behind a field with a higher number: any order is allowed.
	to = appendUint(to, replyRevision, uint64(r.Revision))
	if body > 0 {
		to = protowire.AppendTag(to, replyBody, protowire.BytesType)
		to = protowire.AppendVarint(to, uint64(body))
	}
	return to
}

func appendMessage(to []byte, field protowire.Number, m proto.Message) ([]byte, error) {
	to = protowire.AppendTag(to, field, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(proto.Size(m)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(to, m)
}

// All field numbers here are below 16: a tag is one byte.

func appendUint(to []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return to
	}
	return protowire.AppendVarint(append(to, byte(field)<<3), v)
}

func appendBytes(to []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return to
	}
	return protowire.AppendBytes(append(to, byte(field)<<3|byte(protowire.BytesType)), v)
}

func sizeUint(_ protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func sizeBytes(_ protowire.Number, n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}
