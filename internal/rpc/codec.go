package rpc

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/memory"
)

// codec is sessionwire's, and so protobuf's, except for the most frequent
// requests: puts, ranges and transactions without others inside are encoded and
// decoded by hand. The wire format is the same.
type codec struct {
	encoding.CodecV2
	memory *memory.Budget
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	return c.marshal(v, nil)
}

func (c codec) marshal(v any, p *memory.Promise) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case promised:
		return c.marshal(m.answer, m.Promise)
	case *kvwire.RangeResponse:
		return c.encoded(m.Size(), p, m.AppendTo), nil
	case rangeChunk: // its only field, the first, is the response
		size := m.Size()
		return c.encoded(1+protowire.SizeBytes(size), p, func(b []byte) []byte {
			b = protowire.AppendVarint(append(b, 1<<3|byte(protowire.BytesType)), uint64(size))
			return m.AppendTo(b)
		}), nil
	case *pb.PutResponse:
		if m.PrevKv == nil {
			return c.encoded(kvwire.SizeHeader(m.Header), p, func(b []byte) []byte { return kvwire.AppendHeader(b, m.Header) }), nil
		}
	case *pb.TxnResponse:
		if a, ok := kvwire.BriefAnswer(m); ok {
			return c.encoded(a.Size(), p, a.AppendTo), nil
		}
	}
	if m, ok := v.(proto.Message); ok {
		return c.other(m, p)
	}
	return c.CodecV2.Marshal(v)
}

// other encodes as grpc-go's codec does, but that the memory is counted.
func (c codec) other(m proto.Message, p *memory.Promise) (mem.BufferSlice, error) {
	var err error
	data := c.encoded(proto.Size(m), p, func(b []byte) []byte {
		b, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
		return b
	})
	return data, err
}

// encoded returns what appendTo appends to memory of the size.
func (c codec) encoded(size int, p *memory.Promise, appendTo func([]byte) []byte) mem.BufferSlice {
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(appendTo(make([]byte, 0, size)))}
	}
	b, pool := c.memory.Lend(size, sessionwire.Pool, p)
	*b = appendTo((*b)[:0])
	return mem.BufferSlice{mem.NewBuffer(b, pool)}
}

// promised is an answer for which there is memory.
type promised struct {
	answer any
	*memory.Promise
}

// send sends an answer of n bytes on a stream, or returns full if there is no memory for it.
func send(stream grpc.ServerStream, b *memory.Budget, answer any, n int, full error) error {
	p, ok := b.Promise(int64(n))
	switch {
	case !ok:
		return full
	case p == nil:
		return stream.SendMsg(answer)
	}
	defer p.TakeBack()
	return stream.SendMsg(promised{answer, p})
}

// Unmarshal implements encoding.CodecV2. Keys and values share one piece of memory.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *capture:
		return m.decode(c, data)
	case *pb.PutRequest:
		if p, err := kvwire.ReadPut(data.Materialize()); err == nil {
			p.Into(m)
			return nil
		}
	case *pb.RangeRequest:
		if kvwire.ReadRange(data.Materialize(), m) {
			return nil
		}
	case *pb.TxnRequest:
		if kvwire.ReadTxn(data.Materialize(), m) {
			return nil
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}
