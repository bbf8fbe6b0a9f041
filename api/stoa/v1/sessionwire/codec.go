package sessionwire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Encoded is an encoded message, in memory from [NewEncoded].
type Encoded struct{ Bytes *[]byte }

// Received is an undecoded message, owned by the receiver.
type Received struct{ Bytes []byte }

// NewEncoded returns empty memory to encode a message of about the given size
// into. Sending it with [Codec] returns it to the pool.
func NewEncoded(size int) Encoded {
	b := Pool.Get(size)
	*b = (*b)[:0]
	return Encoded{b}
}

// Codec is gRPC's own codec for protocol buffers, but for a session's messages: it
// sends [Encoded], and *[ClientBatch] and *[ServerBatch], and receives [*Received].
// Use it with grpc.ForceServerCodecV2 or grpc.ForceCodecV2.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	var err error
	var e Encoded
	switch m := v.(type) {
	case Encoded:
		e = m
	case *ClientBatch:
		e = NewEncoded(4 << 10)
		*e.Bytes, err = m.AppendTo(*e.Bytes)
	case *ServerBatch:
		e = NewEncoded(4 << 10)
		*e.Bytes, err = m.AppendTo(*e.Bytes)
	default:
		return c.CodecV2.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding a batch: %w", err)
	}
	if mem.IsBelowBufferPoolingThreshold(len(*e.Bytes)) {
		// gRPC doesn't count references to such small buffers, and never frees
		// them.
		small := append([]byte(nil), *e.Bytes...)
		Pool.Put(e.Bytes)
		return mem.BufferSlice{mem.SliceBuffer(small)}, nil
	}
	return mem.BufferSlice{mem.NewBuffer(e.Bytes, Pool)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*Received)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.Bytes = data.Materialize()
	return nil
}
